"""gammafl in a Flower app, two lines:

app = ClientApp(mods=[gammafl.flower.compress()])
strategy = gammafl.flower.CompressedFedAvg(...)        # instead of FedAvg(...)
"""

try:
    import flwr  # noqa: F401
except ImportError:
    raise ImportError("gammafl.flower needs Flower: pip install 'gammafl[flower]'") from None

from gammafl.federated.limits import Limits
from gammafl.flower.mod import compress
from gammafl.flower.strategy import CompressedFedAvg

__all__ = ["CompressedFedAvg", "Limits", "compress"]

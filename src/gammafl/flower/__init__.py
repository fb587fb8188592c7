"""gammafl in a Flower app takes two lines, one for the clients and one for the server:

app = ClientApp(mods=[gammafl.flower.compress()])
strategy = gammafl.flower.Compressed(strategy, method=…)        # around any strategy
"""

try:
    import flwr  # noqa: F401
except ImportError:
    raise ImportError("gammafl.flower needs Flower: pip install 'gammafl[flower]'") from None

from gammafl.federated.limits import Limits
from gammafl.flower.arrays import array_record, state_dict
from gammafl.flower.fedavg import CompressedFedAvg
from gammafl.flower.mod import compress
from gammafl.flower.strategy import Compressed

__all__ = ["Compressed", "CompressedFedAvg", "Limits", "array_record", "compress", "state_dict"]

"""gammafl: federated learning over thin uplinks. See README.md for a tour, docs/ for the rest."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gammafl import flower as flower
    from gammafl.core.compressors import STC as STC
    from gammafl.core.compressors import Dense as Dense
    from gammafl.core.compressors import GammaFedHT as GammaFedHT
    from gammafl.core.compressors import GammaFedHTQ as GammaFedHTQ
    from gammafl.core.compressors import Half as Half
    from gammafl.core.compressors import HardThreshold as HardThreshold
    from gammafl.core.compressors import Ternary as Ternary
    from gammafl.core.compressors import TopK as TopK
    from gammafl.core.error_feedback import ErrorFeedback as ErrorFeedback
    from gammafl.core.errors import InputError as InputError
    from gammafl.core.errors import WireError as WireError
    from gammafl.core.sparse import SparseUpdate as SparseUpdate
    from gammafl.core.stepsizes import Constant as Constant
    from gammafl.core.stepsizes import ExponentialDecay as ExponentialDecay
    from gammafl.core.stepsizes import InverseDecay as InverseDecay
    from gammafl.core.thresholds import Fixed as Fixed
    from gammafl.core.thresholds import StepsizeAware as StepsizeAware
    from gammafl.core.thresholds import matched_threshold as matched_threshold
    from gammafl.core.thresholds import threshold_for as threshold_for
    from gammafl.core.wire import decode as decode
    from gammafl.core.wire import encode as encode
    from gammafl.runtimes.simulator import simulate as simulate
    from gammafl.tasks.own import torch_task as torch_task

__version__ = "0.1.0"

_HOMES = {
    "gammafl.core.compressors": (
        "STC",
        "Dense",
        "GammaFedHT",
        "GammaFedHTQ",
        "Half",
        "HardThreshold",
        "Ternary",
        "TopK",
    ),
    "gammafl.core.error_feedback": ("ErrorFeedback",),
    "gammafl.core.errors": ("InputError", "WireError"),
    "gammafl.core.sparse": ("SparseUpdate",),
    "gammafl.core.stepsizes": ("Constant", "ExponentialDecay", "InverseDecay"),
    "gammafl.core.thresholds": ("Fixed", "StepsizeAware", "matched_threshold", "threshold_for"),
    "gammafl.core.wire": ("decode", "encode"),
    "gammafl.runtimes.simulator": ("simulate",),
    "gammafl.tasks.own": ("torch_task",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # without flower: `from gammafl import *` needs no Flower


def __getattr__(name: str) -> Any:
    """Names are loaded when first used: `gammafl --help` needs neither the compiler nor torch."""
    from importlib import import_module

    if name == "flower":
        return import_module("gammafl.flower")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'gammafl' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "flower"]

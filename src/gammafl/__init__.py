"""gammafl: federated learning over thin uplinks. See README.md for a tour, docs/ for the rest."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gammafl.core.compressors import STC, Dense, GammaFedHT, GammaFedHTQ, HardThreshold, Half, Ternary, TopK
    from gammafl.core.error_feedback import ErrorFeedback
    from gammafl.core.errors import InputError, WireError
    from gammafl.core.sparse import SparseUpdate
    from gammafl.core.stepsizes import Constant, ExponentialDecay, InverseDecay
    from gammafl.core.thresholds import Fixed, StepsizeAware, matched_threshold, threshold_for
    from gammafl.core.wire import decode, encode
    from gammafl.runtimes.simulator import simulate

__version__ = "0.1.0"

_HOMES = {
    "gammafl.core.compressors": (
        "STC", "Dense", "GammaFedHT", "GammaFedHTQ", "HardThreshold", "Half", "Ternary", "TopK",
    ),
    "gammafl.core.error_feedback": ("ErrorFeedback",),
    "gammafl.core.errors": ("InputError", "WireError"),
    "gammafl.core.sparse": ("SparseUpdate",),
    "gammafl.core.stepsizes": ("Constant", "ExponentialDecay", "InverseDecay"),
    "gammafl.core.thresholds": ("Fixed", "StepsizeAware", "matched_threshold", "threshold_for"),
    "gammafl.core.wire": ("decode", "encode"),
    "gammafl.runtimes.simulator": ("simulate",),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    """Names are loaded when first used: `gammafl --help` needs neither the compiler nor torch."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'gammafl' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

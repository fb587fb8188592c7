"""gammafl: federated learning over thin uplinks. See README.md for a tour, docs/ for the rest."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gammafl import flower as flower
    from gammafl.config.budget import Budget as Budget
    from gammafl.config.link import Link as Link
    from gammafl.config.privacy import Privacy as Privacy
    from gammafl.core.compressors import Compressor as Compressor
    from gammafl.core.compressors import Dense as Dense
    from gammafl.core.compressors import GammaFedHT as GammaFedHT
    from gammafl.core.compressors import HardThreshold as HardThreshold
    from gammafl.core.compressors import TopK as TopK
    from gammafl.core.errors import DivergedError as DivergedError
    from gammafl.core.errors import GammaflError as GammaflError
    from gammafl.core.errors import InputError as InputError
    from gammafl.core.errors import WireError as WireError
    from gammafl.core.layout import Layout as Layout
    from gammafl.core.levels import PaperLevel as PaperLevel
    from gammafl.core.levels import RunLevel as RunLevel
    from gammafl.core.levels import UploadLevel as UploadLevel
    from gammafl.core.memory import ErrorFeedback as ErrorFeedback
    from gammafl.core.memory import NoMemory as NoMemory
    from gammafl.core.method import Method as Method
    from gammafl.core.moment import Moment as Moment
    from gammafl.core.moment import Schedule as Schedule
    from gammafl.core.momentum import MomentumCorrection as MomentumCorrection
    from gammafl.core.rand_k import RandK as RandK
    from gammafl.core.shifts import EF21 as EF21
    from gammafl.core.shifts import Shifts as Shifts
    from gammafl.core.sparse import SparseUpdate as SparseUpdate
    from gammafl.core.stepsizes import Constant as Constant
    from gammafl.core.stepsizes import ExponentialDecay as ExponentialDecay
    from gammafl.core.stepsizes import InverseDecay as InverseDecay
    from gammafl.core.thresholds import matched_threshold as matched_threshold
    from gammafl.core.thresholds import threshold_for as threshold_for
    from gammafl.core.values import BFloat as BFloat
    from gammafl.core.values import Bits as Bits
    from gammafl.core.values import ByChance as ByChance
    from gammafl.core.values import Exact as Exact
    from gammafl.core.values import Half as Half
    from gammafl.core.values import Rotation as Rotation
    from gammafl.core.values import Ternary as Ternary
    from gammafl.core.values import Values as Values
    from gammafl.core.wire import decode as decode
    from gammafl.core.wire import encode as encode
    from gammafl.federated.callbacks import Callback as Callback
    from gammafl.federated.callbacks import Ended as Ended
    from gammafl.federated.callbacks import Evaluated as Evaluated
    from gammafl.federated.callbacks import Round as Round
    from gammafl.federated.callbacks import Run as Run
    from gammafl.federated.early_stopping import EarlyStopping as EarlyStopping
    from gammafl.federated.endpoints import Client as Client
    from gammafl.federated.endpoints import Server as Server
    from gammafl.federated.exchange import Offer as Offer
    from gammafl.federated.limits import Limits as Limits
    from gammafl.federated.records import RoundRecord as RoundRecord
    from gammafl.federated.records import Summary as Summary
    from gammafl.methods.dagc import dagc_a as dagc_a
    from gammafl.methods.dagc import dagc_r as dagc_r
    from gammafl.methods.dgc import dgc as dgc
    from gammafl.methods.drive import drive as drive
    from gammafl.methods.ef_sign import ef_sign as ef_sign
    from gammafl.methods.fedavg import fedavg as fedavg
    from gammafl.methods.gamma_fedht import gamma_fedht as gamma_fedht
    from gammafl.methods.gamma_fedht import gamma_fedht_q as gamma_fedht_q
    from gammafl.methods.hard_threshold import hard_threshold as hard_threshold
    from gammafl.methods.qsgd import qsgd as qsgd
    from gammafl.methods.quantised import quantised as quantised
    from gammafl.methods.rand_k import rand_k as rand_k
    from gammafl.methods.registry import method_named as method_named
    from gammafl.methods.registry import register as register
    from gammafl.methods.shifted import ef21 as ef21
    from gammafl.methods.shifted import gamma_fedht_s as gamma_fedht_s
    from gammafl.methods.sidco import sidco as sidco
    from gammafl.methods.stc import stc as stc
    from gammafl.methods.terngrad import terngrad as terngrad
    from gammafl.methods.top_k import top_k as top_k
    from gammafl.runs.simulate import simulate as simulate
    from gammafl.runs.trackers import TensorBoard as TensorBoard
    from gammafl.runs.trackers import WandB as WandB
    from gammafl.tasks.user_task import torch_task as torch_task

__version__ = "0.2.0"

_HOMES = {
    "gammafl.config.link": ("Link",),
    "gammafl.config.budget": ("Budget",),
    "gammafl.config.privacy": ("Privacy",),
    "gammafl.core.compressors": (
        "Compressor",
        "Dense",
        "GammaFedHT",
        "HardThreshold",
        "TopK",
    ),
    "gammafl.core.errors": (
        "DivergedError",
        "GammaflError",
        "InputError",
        "WireError",
    ),
    "gammafl.core.layout": ("Layout",),
    "gammafl.core.levels": ("PaperLevel", "RunLevel", "UploadLevel"),
    "gammafl.core.memory": (
        "ErrorFeedback",
        "NoMemory",
    ),
    "gammafl.core.method": ("Method",),
    "gammafl.core.moment": (
        "Moment",
        "Schedule",
    ),
    "gammafl.core.momentum": ("MomentumCorrection",),
    "gammafl.core.shifts": ("EF21", "Shifts"),
    "gammafl.core.rand_k": ("RandK",),
    "gammafl.core.sparse": ("SparseUpdate",),
    "gammafl.core.stepsizes": (
        "Constant",
        "ExponentialDecay",
        "InverseDecay",
    ),
    "gammafl.core.thresholds": (
        "matched_threshold",
        "threshold_for",
    ),
    "gammafl.core.values": (
        "BFloat",
        "Bits",
        "ByChance",
        "Exact",
        "Half",
        "Rotation",
        "Ternary",
        "Values",
    ),
    "gammafl.core.wire": (
        "decode",
        "encode",
    ),
    "gammafl.federated.callbacks": ("Callback", "Ended", "Evaluated", "Round", "Run"),
    "gammafl.federated.early_stopping": ("EarlyStopping",),
    "gammafl.federated.endpoints": ("Client", "Server"),
    "gammafl.federated.exchange": ("Offer",),
    "gammafl.federated.limits": ("Limits",),
    "gammafl.federated.records": ("RoundRecord", "Summary"),
    "gammafl.methods.dgc": ("dgc",),
    "gammafl.methods.dagc": ("dagc_a", "dagc_r"),
    "gammafl.methods.ef_sign": ("ef_sign",),
    "gammafl.methods.drive": ("drive",),
    "gammafl.methods.fedavg": ("fedavg",),
    "gammafl.methods.gamma_fedht": (
        "gamma_fedht",
        "gamma_fedht_q",
    ),
    "gammafl.methods.hard_threshold": ("hard_threshold",),
    "gammafl.methods.qsgd": ("qsgd",),
    "gammafl.methods.quantised": ("quantised",),
    "gammafl.methods.rand_k": ("rand_k",),
    "gammafl.methods.registry": (
        "method_named",
        "register",
    ),
    "gammafl.methods.shifted": ("ef21", "gamma_fedht_s"),
    "gammafl.methods.sidco": ("sidco",),
    "gammafl.methods.stc": ("stc",),
    "gammafl.methods.terngrad": ("terngrad",),
    "gammafl.methods.top_k": ("top_k",),
    "gammafl.runs.simulate": ("simulate",),
    "gammafl.runs.trackers": ("TensorBoard", "WandB"),
    "gammafl.tasks.user_task": ("torch_task",),
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

"""Levels: where the scale of a threshold comes from.

    UploadLevel   each upload keeps its planned number of entries; nothing is known of the size of updates
    RunLevel      λ_t = c·shape(t), and the server finds and steers c (`federated/level.py`)
    PaperLevel    the absolute number of the paper's Table II

A compressor never learns its scale: a level finds it, and the moment carries it. docs/levels.md says which is for what.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from gammafl.core.compressors import Compressor, Thresholding
from gammafl.core.errors import InputError, require
from gammafl.core.moment import Moment, Schedule
from gammafl.core.thresholds import mean_spread, require_kept_fraction, rounded, spread_at, threshold_for

Profile = Literal["constant", "gamma"]


class Level(ABC):
    """How much a method keeps, and by which scale of its threshold."""

    @abstractmethod
    def scale(self, compressor: Compressor, dim: int, schedule: Schedule) -> float:
        """`Moment.scale` of a run over `schedule`, for a model of `dim` elements, when the run begins."""

    @abstractmethod
    def check(self, compressor: Compressor) -> None:
        """Refuses a compressor that the level is not for, or settings of it that would have no effect."""

    def planned(self, moment: Moment) -> float | None:
        """The fraction of the entries that an upload at this moment is to keep; None where there is no plan."""
        return None

    def told(self, moment: Moment) -> Moment:
        """The moment as the compressor is told it."""
        return moment

    def asks(self, moment: Moment) -> bool:
        """Whether the server wants to know the smallest magnitude that an upload at this moment keeps."""
        return False


@dataclass(frozen=True)
class UploadLevel(Level):
    """Every upload keeps exactly its planned number of entries, from the first on, for updates of any size.

    keep      the kept fraction
    profile   "constant", or "gamma": more where γ-FedHT's threshold is low, at both ends of a run, in the proportion
              1/λ_t² of the paper's budget; the mean over the run is `keep`

    λ is not known before: it is the magnitude that the planned number of entries of this upload reach.

    >>> from gammafl.core.compressors import HardThreshold
    >>> from gammafl.core.method import Method
    >>> len(Method(HardThreshold(), level=UploadLevel(0.5))([0.001, -0.003, 0.002, 0.0005]))
    2
    """

    keep: float
    profile: Profile = "constant"

    def __post_init__(self) -> None:
        require_kept_fraction(self.keep)
        known = get_args(Profile)
        require(self.profile in known, f"profile must be one of {', '.join(known)}, got {self.profile!r}")

    def scale(self, compressor: Compressor, dim: int, schedule: Schedule) -> float:
        """What makes the profile's mean 1."""
        if self.profile == "constant":
            return 1.0
        mean, (first, last) = mean_spread(schedule.stepsize, schedule.iterations), schedule.ends
        most = self.keep * spread_at(first, first, last) / mean
        require(most <= 1, f"profile 'gamma' would keep {most:.3g} of the entries at first; choose a smaller keep")
        return 2 / mean

    def check(self, compressor: Compressor) -> None:
        name = type(compressor).__name__
        if set_ := _effectless(compressor, {field.name for field in fields(_thresholding(compressor))}):
            raise InputError(
                f"{name}: {set_} has no effect at level 'upload', where each upload keeps its planned number of"
                " entries; leave it out, or use level='run' or 'paper'"
            )

    def planned(self, moment: Moment) -> float:
        if self.profile == "constant":
            return self.keep
        gammas = moment.gamma, moment.first_gamma, moment.last_gamma
        return min(1.0, self.keep * moment.scale * spread_at(*gammas) / 2)

    def told(self, moment: Moment) -> Moment:
        return replace(moment, keep=self.planned(moment)) if moment.keep is None else moment


@dataclass(frozen=True)
class RunLevel(Level):
    """λ_t = c·shape(t) with one c for all clients, which the server finds and steers: `keep` on average over the run.

    keep     the kept fraction
    warmup   rounds at level "upload"; then c is the median of what their uploads had as λ
    steers   false: c stays as the warm-up found it, and what is kept may fall, as with shifts

    The shape is that of the compressor's threshold. A round may keep more or less than `keep`: a client whose update is
    larger sends more of it. For runs of hundreds of rounds; docs/levels.md says when.

    >>> from gammafl.core.compressors import GammaFedHT
    >>> from gammafl.core.method import Method
    >>> Method(GammaFedHT(), level=RunLevel(0.01)).planned(Moment())
    0.01
    """

    keep: float
    warmup: int = 20
    steers: bool = True

    def __post_init__(self) -> None:
        require_kept_fraction(self.keep)
        whole = isinstance(self.warmup, int) and self.warmup >= 1
        require(whole, f"warmup must be a whole number of rounds, at least 1, got {self.warmup}")

    def scale(self, compressor: Compressor, dim: int, schedule: Schedule) -> float:
        """0: nobody knows it yet."""
        return 0.0

    def check(self, compressor: Compressor) -> None:
        if set_ := _effectless(_thresholding(compressor), {"value", "initial"}):
            raise InputError(f"{type(compressor).__name__}: {set_} has no effect at level 'run', which finds it itself")

    def planned(self, moment: Moment) -> float | None:
        return self.keep if self.steers or self.asks(moment) else None

    def told(self, moment: Moment) -> Moment:
        return replace(moment, keep=self.keep) if self.asks(moment) and moment.keep is None else moment

    def asks(self, moment: Moment) -> bool:
        return moment.scale == 0


@dataclass(frozen=True)
class PaperLevel(Level):
    """The paper's calibration (Table II): λ = 1/(2√(dk)) with k = `keep`, rounded to three digits as printed.

    A threshold of another shape gets the scale at which it has the same budget. The number knows nothing of the size of
    updates: it is right for the paper's tasks, and elsewhere keeps more or less than `keep`.
    """

    keep: float

    def __post_init__(self) -> None:
        require_kept_fraction(self.keep)

    def scale(self, compressor: Any, dim: int, schedule: Schedule) -> float:
        return float(compressor.matching(rounded(threshold_for(self.keep, dim)), schedule))

    def check(self, compressor: Compressor) -> None:
        if not hasattr(compressor, "matching"):
            raise InputError(f"{type(compressor).__name__} has no threshold that could be calibrated; leave out level=")


def _thresholding(compressor: Compressor) -> Thresholding:
    """`compressor`, or an error if it has no threshold."""
    if not isinstance(compressor, Thresholding):
        raise InputError(f"{type(compressor).__name__} has no threshold for a level to set; leave out level=")
    return compressor


def _effectless(compressor: Any, names: set[str]) -> str | None:
    """The first of these settings that is not as usual."""
    return next(
        (f.name for f in fields(compressor) if f.name in names and getattr(compressor, f.name) != f.default), None
    )

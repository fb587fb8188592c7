"""Levels: they set the scale of a threshold.

    UploadLevel   each upload keeps its planned number of entries, for updates of any size
    RunLevel      λ_t = c·shape(t): the server finds c and steers it (`federated/level.py`)
    PaperLevel    the absolute number of the paper's Table II

A compressor does not know its scale: a level finds it, and the moment holds it. docs/levels.md says when to use which.
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
    """How much a method keeps, and which scale its threshold has."""

    @abstractmethod
    def scale(self, compressor: Compressor, dim: int, schedule: Schedule) -> float:
        """`Moment.scale` at the beginning of a run over `schedule`, for a model of `dim` elements."""

    @abstractmethod
    def check(self, compressor: Compressor) -> None:
        """Refuses a compressor for which the level is not made, or settings of it that would have no effect."""

    def planned(self, moment: Moment) -> float | None:
        """The planned fraction of the entries in an upload at this moment; None if there is no plan."""
        return None

    def told(self, moment: Moment) -> Moment:
        """The moment for the compressor."""
        return moment

    def asks(self, moment: Moment) -> bool:
        """Whether the server needs the smallest magnitude that an upload at this moment keeps."""
        return False


@dataclass(frozen=True)
class UploadLevel(Level):
    """Every upload keeps exactly its planned number of entries, from the first upload on, for updates of any size.

    keep      the kept fraction
    profile   "constant", or "gamma": it keeps more when γ-FedHT's threshold is low, at both ends of a run. The kept
              fraction is proportional to 1/λ_t², as in the paper's budget, and its mean over the run is `keep`

    λ follows from the upload: it is the magnitude that the planned number of entries reach.

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
        """The factor with which the profile's mean is 1."""
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
    """λ_t = c·shape(t) with one c for all clients. The server steers c so that the run keeps `keep` on average.

    keep     the kept fraction
    warmup   the number of first rounds at level "upload". Then c is the median of their uploads' λ
    steers   false: c does not change after the warm-up, and the kept fraction may fall, as with shifts

    The shape is that of the compressor's threshold. A round may keep more or less than `keep`, and a client with a
    larger update sends more. It is made for runs of hundreds of rounds: see docs/levels.md.

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
        """0, since it is not known yet."""
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
    """The paper's calibration (Table II): λ = 1/(2√(dk)) with k = `keep`, rounded to three digits as in the paper.

    keep   the kept fraction

    A threshold of another shape gets the scale with the same budget. The number does not depend on the size of updates:
    it is right for the paper's tasks, and keeps more or less than `keep` elsewhere.

    >>> from gammafl.core.compressors import HardThreshold
    >>> from gammafl.core.moment import Schedule
    >>> PaperLevel(0.01).scale(HardThreshold(), dim=10_000, schedule=Schedule(0.1, 100))
    0.05
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
    """The first of these settings that differs from its default."""
    return next(
        (f.name for f in fields(compressor) if f.name in names and getattr(compressor, f.name) != f.default), None
    )

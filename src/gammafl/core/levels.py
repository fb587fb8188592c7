"""Levels: where the scale of a threshold comes from.

A compressor never learns its scale. A level finds it from the model and the schedule, and the moment carries it.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gammafl.core.errors import InputError
from gammafl.core.moment import Schedule
from gammafl.core.thresholds import require_kept_fraction, rounded, threshold_for

if TYPE_CHECKING:
    from gammafl.core.compressors import Compressor


class Level(ABC):
    """Finds the scale of a method's threshold for a run."""

    @abstractmethod
    def scale(self, compressor: "Compressor", dim: int, schedule: Schedule) -> float:
        """What the compressor's threshold is multiplied by, for a model of `dim` elements."""


@dataclass(frozen=True)
class PaperLevel(Level):
    """The paper's calibration (Table II): λ = 1/(2√(dk)) with k = `keep`, rounded to three digits as printed.

    A threshold of another shape gets the scale at which it has the same budget.
    """

    keep: float

    def __post_init__(self) -> None:
        require_kept_fraction(self.keep)

    def scale(self, compressor: "Compressor", dim: int, schedule: Schedule) -> float:
        match = getattr(compressor, "matching", None)
        if match is None:
            raise InputError(f"{type(compressor).__name__} has no threshold that could be calibrated; leave out level=")
        return float(match(rounded(threshold_for(self.keep, dim)), schedule))

"""Pictures as plain numbers, which `figures` draws for papers and `interactive` for a page."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999933")
"""Okabe and Ito's, without their yellow, which is faint on white: colour-blind readers can tell them apart."""


@dataclass(frozen=True)
class Line:
    label: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str | None = None
    style: str = "-"
    width: float = 1.8
    measured: bool = True
    """Otherwise it is a formula's, and its points are nothing to be marked."""


@dataclass(frozen=True)
class Panel:
    """Axes with lines, each labelled at its right end."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    log_x: bool = False
    log_y: bool = False
    y_limits: tuple[float | None, float | None] = (None, None)


@dataclass(frozen=True)
class HeatMap:
    """A matrix of numbers; NaN is left blank. `marks` are words in the cells beside the number."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float]]
    marks: Sequence[Sequence[str]] = field(default_factory=list)


@dataclass(frozen=True)
class Estimate:
    """A mean with its interval, for a row of an interval plot; `reference` is the paper's number."""

    label: str
    mean: float
    low: float
    high: float
    colour: str = COLOURS[0]
    reference: float | None = None

    @property
    def has_interval(self) -> bool:
        """Whether there is an interval: there is none of one seed."""
        return math.isfinite(self.low) and math.isfinite(self.high)


def signs(estimates: Sequence[Estimate]) -> str:
    """What the signs of an interval plot mean."""
    single = "" if all(one.has_interval for one in estimates) else ", hollow: one seed"
    paper = ", diamond: paper" if any(one.reference is not None for one in estimates) else ""
    return f"dot: mean, line: 95% interval over seeds{single}{paper}"


@dataclass(frozen=True)
class LinePicture:
    """Panels side by side."""

    name: str
    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class HeatMapPicture:
    """Heat maps, each with a colour scale of its own around zero."""

    name: str
    title: str
    unit: str
    maps: Sequence[HeatMap]


@dataclass(frozen=True)
class IntervalPicture:
    """A row an estimate: mean and 95% interval, the paper's number beside it."""

    name: str
    title: str
    x_label: str
    estimates: Sequence[Estimate]


Picture = LinePicture | HeatMapPicture | IntervalPicture
"""`name` is the stem of its files."""

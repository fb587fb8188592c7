"""The paper's own numbers (Tables II, III and IV), to be printed beside ours. Accuracies in per cent, traffic in MiB.

Traffic counts values only, no positions: 32 bits a kept value in Table III, 2 bits in Table IV.
"""

from collections.abc import Callable
from typing import NamedTuple

from gammafl.experiments.claims import Place
from gammafl.experiments.columns import Column
from gammafl.experiments.rows import Rows


class Calibrated(NamedTuple):
    """A row of Table II: d, k, T from Table I, then λ, λ_0 for the inverse and for the exponential stepsize."""

    dim: int
    keep: float
    iterations: int
    threshold: float
    inverse: float
    exponential: float


TABLE_II = {
    "VGG11s@Flickr": Calibrated(865_482, 0.001, 40_000, 1.70e-2, 3.35e-2, 6.28e-2),
    "Logistic@FMNIST": Calibrated(10_250, 0.01, 20_000, 4.94e-2, 8.70e-2, 9.41e-2),
    "CNN@CIFAR-10": Calibrated(235_690, 0.001, 40_000, 3.26e-2, 6.42e-2, 1.21e-1),
    "GPT2@Wikitext2": Calibrated(124_000_000, 0.001, 1_000, 1.42e-3, 2.29e-3, 9.02e-3),
}


class Sent(NamedTuple):
    """Accuracy (%), traffic (MiB), and what the traffic was reduced to (%)."""

    accuracy: float
    traffic: float
    reduced: float


_LOGISTIC = {
    ("2", "top-k"): Sent(81.97, 3.44, 2.20),
    ("2", "ht"): Sent(81.99, 3.78, 2.42),
    ("2", "gamma-fedht"): Sent(82.23, 3.44, 2.20),
    ("2", "fedavg"): Sent(82.34, 156.40, 100),
    ("3", "top-k"): Sent(82.84, 3.19, 2.04),
    ("3", "ht"): Sent(82.82, 3.50, 2.24),
    ("3", "gamma-fedht"): Sent(83.05, 3.19, 2.04),
    ("3", "fedavg"): Sent(83.11, 156.40, 100),
    ("5", "top-k"): Sent(83.56, 2.56, 1.64),
    ("5", "ht"): Sent(83.43, 2.82, 1.80),
    ("5", "gamma-fedht"): Sent(83.51, 2.56, 1.64),
    ("5", "fedavg"): Sent(83.57, 156.40, 100),
    ("2", "stc"): Sent(81.75, 0.21, 0.14),
    ("2", "gamma-fedht-q"): Sent(82.19, 0.21, 0.14),
    ("3", "stc"): Sent(82.73, 0.20, 0.13),
    ("3", "gamma-fedht-q"): Sent(82.92, 0.20, 0.13),
    ("5", "stc"): Sent(83.36, 0.16, 0.10),
    ("5", "gamma-fedht-q"): Sent(83.46, 0.16, 0.10),
}
_CNN = {
    ("2", "top-k"): Sent(57.57, 23.74, 0.33),
    ("2", "ht"): Sent(61.56, 21.58, 0.30),
    ("2", "gamma-fedht"): Sent(64.51, 23.74, 0.33),
    ("2", "fedavg"): Sent(65.75, 7192.69, 100),
    ("3", "top-k"): Sent(64.88, 25.89, 0.36),
    ("3", "ht"): Sent(71.12, 30.21, 0.42),
    ("3", "gamma-fedht"): Sent(72.30, 25.89, 0.36),
    ("3", "fedavg"): Sent(72.42, 7192.69, 100),
    ("5", "top-k"): Sent(70.33, 20.14, 0.28),
    ("5", "ht"): Sent(73.35, 23.74, 0.33),
    ("5", "gamma-fedht"): Sent(74.58, 20.14, 0.28),
    ("5", "fedavg"): Sent(75.36, 7192.69, 100),
    ("2", "stc"): Sent(58.83, 1.42, 0.020),
    ("2", "gamma-fedht-q"): Sent(63.90, 1.42, 0.020),
    ("3", "stc"): Sent(64.59, 1.56, 0.022),
    ("3", "gamma-fedht-q"): Sent(71.26, 1.56, 0.022),
    ("5", "stc"): Sent(70.19, 1.22, 0.017),
    ("5", "gamma-fedht-q"): Sent(74.10, 1.22, 0.017),
}
TABLES_III_IV = {"logistic-fmnist": _LOGISTIC, "cnn-cifar10": _CNN}
"""Task → (#C, method) → the row. Top-k's and STC's scope is not stated."""


def printed(task: str, classes: str, method: str) -> Sent | None:
    """The paper's row for a level such as 'top-k' or 'top-k per tensor'; None where it prints none."""
    return TABLES_III_IV.get(task, {}).get((classes, method.removesuffix(" per tensor")))


def paper_column(show: Callable[[Sent, str], str]) -> Column:
    """What `show` makes of the paper's row and the method, beside ours; '–' where there is none."""

    def text(rows: Rows, cell: Place) -> str:
        row = printed(rows.task, cell["classes"], cell["method"])
        return show(row, cell["method"]) if row else "–"

    return Column("paper", text)


def paper_gap(rows: Rows, first: Place, second: Place) -> float | None:
    """The paper's difference in accuracy, in points; at #C=2 where nothing else is said."""
    a, b = (printed(rows.task, place.get("classes", "2"), place["method"]) for place in (first, second))
    return round(a.accuracy - b.accuracy, 2) if a and b else None


def paper_saving(rows: Rows, first: Place, second: Place) -> float | None:
    """By how many per cent the first sends less than the second, in the paper's traffic."""
    a, b = (printed(rows.task, place["classes"], place["method"]) for place in (first, second))
    return 100 * (1 - a.traffic / b.traffic) if a and b else None


def kept_by_paper(row: Sent, method: str) -> float:
    """Per cent of the entries that are sent: Table IV counts 2 bits a value, a sixteenth of what Table III counts."""
    sixteenths = method.removesuffix(" per tensor") in ("stc", "gamma-fedht-q")
    return round(16 * row.reduced, 2) if sixteenths else row.reduced

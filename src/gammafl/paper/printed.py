"""The paper's own numbers (Tables II, III and IV), for comparison. Accuracies are in per cent, traffic is in MiB.

Traffic counts only values, without positions: 32 bits per kept value in Table III, and 2 bits in Table IV.
"""

from collections.abc import Callable
from typing import NamedTuple

from gammafl.experiments.claims import Place
from gammafl.experiments.columns import Column
from gammafl.experiments.labels import PER_TENSOR
from gammafl.experiments.rows import Rows, Samples


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
    "top-k": {"2": Sent(81.97, 3.44, 2.20), "3": Sent(82.84, 3.19, 2.04), "5": Sent(83.56, 2.56, 1.64)},
    "ht": {"2": Sent(81.99, 3.78, 2.42), "3": Sent(82.82, 3.50, 2.24), "5": Sent(83.43, 2.82, 1.80)},
    "gamma-fedht": {"2": Sent(82.23, 3.44, 2.20), "3": Sent(83.05, 3.19, 2.04), "5": Sent(83.51, 2.56, 1.64)},
    "fedavg": {"2": Sent(82.34, 156.40, 100), "3": Sent(83.11, 156.40, 100), "5": Sent(83.57, 156.40, 100)},
    "stc": {"2": Sent(81.75, 0.21, 0.14), "3": Sent(82.73, 0.20, 0.13), "5": Sent(83.36, 0.16, 0.10)},
    "gamma-fedht-q": {"2": Sent(82.19, 0.21, 0.14), "3": Sent(82.92, 0.20, 0.13), "5": Sent(83.46, 0.16, 0.10)},
}
_CNN = {
    "top-k": {"2": Sent(57.57, 23.74, 0.33), "3": Sent(64.88, 25.89, 0.36), "5": Sent(70.33, 20.14, 0.28)},
    "ht": {"2": Sent(61.56, 21.58, 0.30), "3": Sent(71.12, 30.21, 0.42), "5": Sent(73.35, 23.74, 0.33)},
    "gamma-fedht": {"2": Sent(64.51, 23.74, 0.33), "3": Sent(72.30, 25.89, 0.36), "5": Sent(74.58, 20.14, 0.28)},
    "fedavg": {"2": Sent(65.75, 7192.69, 100), "3": Sent(72.42, 7192.69, 100), "5": Sent(75.36, 7192.69, 100)},
    "stc": {"2": Sent(58.83, 1.42, 0.020), "3": Sent(64.59, 1.56, 0.022), "5": Sent(70.19, 1.22, 0.017)},
    "gamma-fedht-q": {"2": Sent(63.90, 1.42, 0.020), "3": Sent(71.26, 1.56, 0.022), "5": Sent(74.10, 1.22, 0.017)},
}
TABLES_III_IV = {"logistic-fmnist": _LOGISTIC, "cnn-cifar10": _CNN}
"""Task → method → #C → what the paper prints. Top-k's and STC's scope is not stated."""


def printed(rows: Rows, place: Place) -> Sent | None:
    """What the paper prints for a place whose method may be 'top-k per tensor'; None where it prints nothing."""
    by_method = TABLES_III_IV.get(rows.task, {})
    return by_method.get(place["method"].removesuffix(PER_TENSOR), {}).get(place.get("classes", "2"))


def over_paper(rows: Rows, key: str, place: Place, paper: Sent) -> Samples:
    """By how many points an accuracy is above the paper's, for each seed."""
    return rows.by_seed(key, **place).each(lambda value: 100 * (value - paper.accuracy / 100))


def paper_column(show: Callable[[Sent, str], str]) -> Column:
    """A column with what `show` makes of the paper's numbers and the method; '–' where the paper prints none."""

    def text(rows: Rows, cell: Place) -> str:
        sent = printed(rows, cell)
        return show(sent, cell["method"]) if sent else "–"

    return Column("paper", text)


PAPER_ACCURACY = paper_column(lambda paper, method: f"{paper.accuracy:.2f}")


def paper_gap(rows: Rows, first: Place, second: Place) -> float | None:
    """The paper's difference in accuracy, in points; at #C=2 if the places name no #C."""
    a, b = printed(rows, first), printed(rows, second)
    return round(a.accuracy - b.accuracy, 2) if a and b else None


def paper_saving(rows: Rows, first: Place, second: Place) -> float | None:
    """By how many per cent the first sends less than the second, in the paper's traffic."""
    a, b = printed(rows, first), printed(rows, second)
    return 100 * (1 - a.traffic / b.traffic) if a and b else None


def kept_by_paper(row: Sent, method: str) -> float:
    """Per cent of the entries that are sent. Table IV counts 2 bits per value, a sixteenth of Table III's 32 bits."""
    sixteenths = method.removesuffix(PER_TENSOR) in ("stc", "gamma-fedht-q")
    return round(16 * row.reduced, 2) if sixteenths else row.reduced

"""What the declarations share: the paper's tasks, and its printed numbers beside ours."""

from typing import TypeVar

from gammafl.experiments.claims import Place
from gammafl.experiments.rows import Rows
from gammafl.paper.printed import printed, printed_gap

MINI = "logistic-mini"
"""The task that needs no download: every study of the logistic task has it too, to see the machinery work."""
LOGISTIC = ("logistic-fmnist", MINI)
CNN = ("cnn-cifar10",)
TASKS = ("logistic-fmnist", "cnn-cifar10")

T = TypeVar("T")


def by_task(logistic: T, cnn: T) -> dict[str, T]:
    """Task → what the paper has for Logistic or for CNN."""
    return {**dict.fromkeys(LOGISTIC, logistic), **dict.fromkeys(CNN, cnn)}


NON_IID = by_task(
    {"partition": {"kind": "labels", "classes": 2}},
    {"partition": {"kind": "labels", "classes": 5}},
)
"""#C of Figs. 1 and 2."""


def paper_gap(rows: Rows, first: Place, second: Place) -> float | None:
    """The paper's difference in accuracy; at #C=2 where nothing else is said."""
    return printed_gap(rows.task, first.get("classes", "2"), first["method"], second["method"])


def paper_saving(rows: Rows, first: Place, second: Place) -> float | None:
    """By how many per cent the first sends less than the second, in the paper's traffic."""
    a, b = (printed(rows.task, place["classes"], place["method"]) for place in (first, second))
    return 100 * (1 - a.traffic / b.traffic) if a and b else None

"""What the studies of the paper share: its tasks."""

from typing import TypeVar

MINI = "logistic-mini"
"""The task that needs no download. Every study of the logistic task has it too, as a quick try."""
LOGISTIC = ("logistic-fmnist", MINI)
CNN = ("cnn-cifar10",)
TASKS = ("logistic-fmnist", "cnn-cifar10")

T = TypeVar("T")


def by_task(logistic: T, cnn: T) -> dict[str, T]:
    """Task → the value that belongs to it: `logistic` for the logistic tasks, `cnn` for the CNN."""
    return {**dict.fromkeys(LOGISTIC, logistic), **dict.fromkeys(CNN, cnn)}


NON_IID = by_task(
    {"partition": {"kind": "labels", "classes": 2}},
    {"partition": {"kind": "labels", "classes": 5}},
)
"""#C of Figs. 1 and 2."""

"""The metrics of the test set that are reported with the loss."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch

from gammafl.core.errors import InputError, require
from gammafl.tasks.nested import Nested, joined

Metric = Literal["accuracy", "perplexity", "loss"]
MetricFunction = Callable[[Any, Any], Any]
"""(outputs, targets) of the whole test set → a number."""

MetricChoice = Metric | MetricFunction | Mapping[str, Metric | MetricFunction]
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.@-]{0,39}")


@dataclass(frozen=True)
class Metrics:
    """Named metrics. The first one is the run's own: pictures show it, and its best value is reported."""

    named: Mapping[str, Metric | MetricFunction]
    higher_is_better: bool

    @property
    def first(self) -> str:
        return next(iter(self.named))

    @property
    def text(self) -> str:
        """The names of the metrics and of their functions."""
        told = {name: getattr(metric, "__qualname__", metric) for name, metric in self.named.items()}
        return ", ".join(name if name == metric else f"{name}: {metric}" for name, metric in told.items())

    @property
    def counts_answers(self) -> bool:
        """Whether an accuracy is wanted."""
        return "accuracy" in self.named.values()

    @property
    def needs_outputs(self) -> bool:
        """Whether a user's own function needs the outputs."""
        return any(callable(metric) for metric in self.named.values())

    def values(self, loss: float, accuracy: float, outputs: Sequence[Nested], targets: Sequence[Nested]) -> list[float]:
        """The value of each metric, from the test set's mean loss and accuracy, or from its batches."""
        known = {"accuracy": accuracy, "perplexity": math.exp(min(loss, 700)), "loss": loss}
        if not self.needs_outputs:
            return [known[str(metric)] for metric in self.named.values()]
        together = _together(outputs), _together(targets)
        return [
            _number(name, metric(*together)) if callable(metric) else known[metric]
            for name, metric in self.named.items()
        ]


def metrics_of(choice: MetricChoice, higher_is_better: bool) -> Metrics:
    """`choice` as metrics. `higher_is_better` is for a first metric that is a user's own function."""
    if isinstance(choice, str) or callable(choice):
        choice = {choice if isinstance(choice, str) else getattr(choice, "__name__", "?"): choice}
    require(isinstance(choice, Mapping) and len(choice) > 0, f"metric must be {_FORMS}, got {choice!r}")
    for name, metric in choice.items():
        fits = callable(metric) or metric in get_args(Metric)
        require(fits, f"metric must be one of {', '.join(get_args(Metric))}, or {_FORMS}; got {metric!r}")
        named = isinstance(name, str) and NAME.fullmatch(name)
        require(bool(named), f"a metric's name has letters and digits, got {name!r}: metric={{'name': function}}")
    first = next(iter(choice.values()))
    return Metrics(dict(choice), higher_is_better if callable(first) else first == "accuracy")


_FORMS = "a function of (outputs, targets), or a table {'name': function, …}"


def right_answers(outputs: torch.Tensor, targets: torch.Tensor) -> int:
    """The number of samples whose largest score is the target's."""
    tensors = isinstance(outputs, torch.Tensor) and isinstance(targets, torch.Tensor)
    if not tensors or outputs.dim() != 2 or targets.shape != outputs.shape[:1]:
        gives = list(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
        wanted = list(targets.shape) if isinstance(targets, torch.Tensor) else type(targets).__name__
        raise InputError(
            f"accuracy needs a score for each class, [samples, classes], and a class for each sample; the model gives"
            f" {gives} for targets of {wanted}. Use metric='loss' or metric='perplexity', or a function of your own"
        )
    return int((outputs.argmax(1) == targets).sum())


def _together(batches: Sequence[Nested]) -> Nested:
    try:
        return joined(batches)
    except (RuntimeError, TypeError) as error:
        raise InputError(
            f"the batches of the test set can't be put together for a metric of your own ({error}): outputs and targets"
            " must be tensors, of one shape for each sample, such as by padding to one length"
        ) from None


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"the metric {name!r} must be a number, got {type(value).__name__}") from None

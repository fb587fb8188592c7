"""The loss of local training: a function of outputs and targets, or the loss that the model computes itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from gammafl.core.errors import InputError
from gammafl.tasks.nested import Nested

Loss = Callable[[Any, Any], torch.Tensor]
"""(outputs, targets) → a mean over the samples of a batch."""

Module = Callable[..., Any]
"""A torch module, or an object that is called like one."""

LABELS = "labels"
"""The target's name in a sample that is a dict."""


@dataclass(frozen=True)
class Objective:
    """`loss`; if it is None, the model's own loss, as HuggingFace's models compute it: `model(**batch).loss`."""

    loss: Loss | None

    @property
    def text(self) -> str:
        return "the model's own" if self.loss is None else str(getattr(self.loss, "__qualname__", repr(self.loss)))

    def __call__(self, module: Module, inputs: Nested, targets: Nested) -> tuple[torch.Tensor, Any]:
        """(loss, outputs) of a batch."""
        if self.loss is not None:
            outputs = _logits(_called(module, inputs), inputs)
            return self.loss(outputs, targets), outputs
        named = inputs if targets is None else {**inputs, LABELS: targets}
        output = _called(module, named)
        loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
        if not isinstance(loss, torch.Tensor):
            raise InputError(
                f"samples are dicts, and {type(module).__name__}(**batch) gave no loss: give samples {LABELS!r} that"
                " the model makes a loss of, or give a loss= of (outputs, labels)"
            )
        return loss, _logits(output, inputs)


def _called(module: Module, inputs: Nested) -> Any:
    """The module's output, called with one input, several in a tuple, or several by name in a dict."""
    if isinstance(inputs, tuple):
        return module(*inputs)
    if not isinstance(inputs, Mapping):
        return module(inputs)
    try:
        return module(**inputs)
    except TypeError as error:
        if "argument" not in str(error):
            raise
        raise InputError(
            f"samples are dicts, and {type(module).__name__} can't be called with {', '.join(inputs)} ({error}): name"
            f" the arguments of its forward, and the target {LABELS!r} where loss= is given; or make pairs (input,"
            " target)"
        ) from None


def _logits(output: Any, inputs: Nested) -> Any:
    """The outputs for loss and metrics. For a model that is called by names, its `logits`, if it has some."""
    if not isinstance(inputs, Mapping) or isinstance(output, torch.Tensor):
        return output
    logits = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    return output if logits is None else logits

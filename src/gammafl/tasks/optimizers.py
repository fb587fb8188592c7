"""Local steps with any torch optimiser, and FedProx's proximal term.

Each client gets a new optimiser in each round, as in Flower apps. So momentum and second moments never leave a client,
and need no checkpoint. The learning rate of each step is γ_t.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from gammafl.config.optimizers import LocalOptimizer, table_of
from gammafl.core.errors import InputError, require
from gammafl.core.names import did_you_mean, require_settings

Make = Callable[..., Optimizer]
"""(parameters, lr=γ) → an optimiser: a class of torch.optim, a `functools.partial` of one, or a function."""

OptimizerChoice = str | Mapping[str, Any] | LocalOptimizer | Make | None
ADVICE = "give a class such as torch.optim.AdamW, or a function such as lambda params, lr: torch.optim.SGD(params, lr)"


@dataclass(frozen=True)
class LocalRule:
    """How local steps change the weights, if they are not plain SGD."""

    make: Make
    rates: tuple[float, ...]
    """The factor of γ for each of the optimiser's groups of parameters."""

    proximal: float
    text: str
    """The optimiser and its settings, for a learning rate of 1."""

    def begin(self, parameters: Sequence[nn.Parameter], stepsize: float, scaled_on: str | None = None) -> "LocalSteps":
        """The steps of a client in a round, from the current parameters. The first step uses `stepsize`.

        With `scaled_on`, a type of devices, the loss is scaled up, so that gradients in half precision do not vanish.
        """
        return LocalSteps(self, parameters, self.make(parameters, lr=stepsize), scaled_on)


LOSS_SCALE = 1024.0
"""The factor of a loss before float16 gradients are computed. If gradients overflow, the step is skipped, and the
factor is halved."""


class LocalSteps:
    """The steps of a client in a round."""

    def __init__(
        self, rule: LocalRule, parameters: Sequence[nn.Parameter], optimizer: Optimizer, scaled_on: str | None = None
    ) -> None:
        self._rule = rule
        self._parameters = parameters
        self._optimizer = optimizer
        # new for each client and round, like all state of local training
        self._scaler = torch.amp.GradScaler(scaled_on or "cpu", LOSS_SCALE, enabled=scaled_on is not None)
        self._start = [parameter.detach().clone() for parameter in parameters] if rule.proximal else []

    def take(self, loss: torch.Tensor, stepsize: float) -> None:
        """Makes a step on loss(x) + μ/2·‖x − x_start‖²."""
        self._scaler.scale(loss).backward()
        self._scaler.unscale_(self._optimizer)
        for parameter, start in zip(self._parameters, self._start, strict=False):
            if parameter.grad is not None:
                parameter.grad.add_(parameter.detach() - start, alpha=self._rule.proximal)
        for group, rate in zip(self._optimizer.param_groups, self._rule.rates, strict=True):
            group["lr"] = rate * stepsize
        self._scaler.step(self._optimizer)
        self._scaler.update()
        for parameter in self._parameters:
            parameter.grad = None


def local_rule(choice: OptimizerChoice, proximal: float, parameters: Sequence[nn.Parameter]) -> LocalRule | None:
    """`choice` as a rule for these parameters; None for plain SGD, which has faster code."""
    known = isinstance(proximal, int | float) and 0 <= proximal < float("inf")
    require(known, f"proximal is FedProx's μ, a number of at least 0; got {proximal!r}")
    make = _make(choice)
    optimizer = _tried(make, parameters, 1.0)
    rates = _rates(optimizer)
    halves = _rates(_tried(make, parameters, 0.5))
    require(
        halves == tuple(rate / 2 for rate in rates),
        "optimizer must use the lr that it is given, which is the run's stepsize: lambda params, lr: …(params, lr=lr)",
    )
    if proximal == 0 and _is_plain_sgd(optimizer, parameters):
        return None
    return LocalRule(make, rates, float(proximal), " ".join(repr(optimizer).split()))


def plain_rule() -> LocalRule:
    """Plain SGD as a rule, if its faster code can't be used."""
    return LocalRule(torch.optim.SGD, (1.0,), 0.0, "sgd")


def _make(choice: OptimizerChoice) -> Make:
    if choice is None:
        return torch.optim.SGD
    if isinstance(choice, LocalOptimizer):
        return _named(choice.kind, choice.arguments)
    if isinstance(choice, str | Mapping):
        table = table_of(choice)
        return _named(str(table.pop("kind", "sgd")).lower(), table)
    if isinstance(choice, Optimizer):
        raise InputError(f"optimizer is an optimizer, but each client and round needs a new one: {ADVICE}")
    require(callable(choice), f"optimizer is a {type(choice).__name__}: {ADVICE}")
    return choice


def _named(kind: str, arguments: dict[str, Any]) -> Make:
    """The optimiser of torch.optim with this name and these arguments."""
    classes = _classes()
    if kind not in classes:
        raise InputError(
            f"no optimizer {kind!r}{did_you_mean(kind, classes)}; torch has {', '.join(classes)}. One of your own is"
            " given in Python: optimizer=MyOptimizer"
        )
    require("lr" not in arguments, "optimizer.lr is not a setting: the learning rate is the run's stepsize")
    known = [name for name in inspect.signature(classes[kind]).parameters if name not in ("params", "lr")]
    require_settings(f"optimizer {kind!r}", arguments, known)
    return partial(classes[kind], **arguments)


def _classes() -> dict[str, type[Optimizer]]:
    """Name in lower case → class, without those that need sparse gradients or the loss as a function."""
    found = (value for value in vars(torch.optim).values() if isinstance(value, type) and issubclass(value, Optimizer))
    unfit = (Optimizer, torch.optim.LBFGS, torch.optim.SparseAdam)
    return dict(sorted((value.__name__.lower(), value) for value in found if value not in unfit))


def _tried(make: Make, parameters: Sequence[nn.Parameter], rate: float) -> Optimizer:
    try:
        optimizer = make(parameters, lr=rate)
    except (TypeError, ValueError) as error:
        raise InputError(f"the optimizer can't be made ({error}); {ADVICE}") from None
    got = type(optimizer).__name__
    require(isinstance(optimizer, Optimizer), f"optimizer made a {got}, which is not a torch.optim.Optimizer; {ADVICE}")
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    required = closure is not None and closure.default is inspect.Parameter.empty
    require(not required, f"{got} needs the loss as a function, which local steps don't have: choose another optimizer")
    return optimizer


def _rates(optimizer: Optimizer) -> tuple[float, ...]:
    """The learning rate of each group of parameters."""
    kind = type(optimizer).__name__
    require(all("lr" in group for group in optimizer.param_groups), f"{kind} has no lr in its groups of parameters")
    return tuple(float(group["lr"]) for group in optimizer.param_groups)


def _is_plain_sgd(optimizer: Optimizer, parameters: Sequence[nn.Parameter]) -> bool:
    """Whether its step is x ← x − γ·∇f(x) for all parameters."""
    if type(optimizer) is not torch.optim.SGD or len(optimizer.param_groups) != 1:
        return False
    (group,) = optimizer.param_groups
    changed = any(group[key] for key in ("momentum", "weight_decay", "nesterov", "maximize"))
    return not changed and group["lr"] == 1 and len(group["params"]) == len(parameters)

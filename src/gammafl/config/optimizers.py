"""The optimisers of a run: for the clients' local steps, and for the server."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, field_validator, model_validator

from gammafl.config.settings import Settings
from gammafl.core.errors import InputError
from gammafl.core.names import did_you_mean, require_settings
from gammafl.methods.registry import split_expression

Beta = Annotated[float, Field(ge=0, lt=1)]
Rate = Annotated[float, Field(gt=0)]
Tau = Annotated[float, Field(ge=1e-12, description="τ, added to √v: the smaller, the more adaptive")]
MEAN, SQUARES = "share of the old mean of updates in the new one", "the same for the mean of their squares"


class LocalOptimizer(Settings):
    """An optimiser of torch by name. Its other arguments, such as momentum, are settings next to `kind`."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, bool | int | float | str | tuple[float, ...]] = Field(init=False)

    kind: str = Field(
        "sgd",
        description="the optimiser of local steps: sgd, adamw or another of torch.optim. Its arguments are settings, "
        "such as optimizer.momentum, optimizer.weight_decay. Its learning rate is the stepsize",
    )

    @model_validator(mode="before")
    @classmethod
    def _plain_values(cls, table: Any) -> Any:
        for key, value in table.items() if isinstance(table, dict) else ():
            if not all(map(_is_plain, value if isinstance(value, list | tuple) else [value])):
                raise ValueError(f"optimizer.{key} must be a finite number, a word or a list of numbers, got {value!r}")
        return table

    @field_validator("kind")
    @classmethod
    def _in_lower_case(cls, kind: str) -> str:
        return kind.lower()

    @property
    def arguments(self) -> dict[str, Any]:
        """All settings except `kind`."""
        return dict(self.model_extra or {})


def _is_plain(value: Any) -> bool:
    return isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))


class NoServerOptimizer(Settings):
    """The server adds the weighted mean of the updates to its model, as in FedAVG."""

    kind: Literal["none"] = "none"


class ServerMomentum(Settings):
    """FedAvgM: v ← momentum·v + u, x ← x − lr·v, where u is the weighted mean of the updates."""

    kind: Literal["momentum"] = "momentum"
    lr: Rate = 1.0
    momentum: Beta = 0.9


class ServerAdam(Settings):
    """FedAdam: x ← x − lr'·m/(√v + τ), where lr' corrects the means m and v in the first rounds."""

    kind: Literal["adam"] = "adam"
    lr: Rate = 0.1
    beta_1: Beta = Field(0.9, description=MEAN)
    beta_2: Beta = Field(0.99, description=SQUARES)
    tau: Tau = 1e-3


class ServerYogi(Settings):
    """FedYogi: as FedAdam without the correction, and v changes by at most (1 − beta_2)·u²."""

    kind: Literal["yogi"] = "yogi"
    lr: Rate = 0.01
    beta_1: Beta = Field(0.9, description=MEAN)
    beta_2: Beta = Field(0.99, description=SQUARES)
    tau: Tau = 1e-3


class ServerAdagrad(Settings):
    """FedAdagrad: v ← v + u², x ← x − lr·u/(√v + τ)."""

    kind: Literal["adagrad"] = "adagrad"
    lr: Rate = 0.1
    tau: Tau = 1e-3


ServerOptimizer = NoServerOptimizer | ServerMomentum | ServerAdam | ServerYogi | ServerAdagrad
_ADAPTER: TypeAdapter[ServerOptimizer] = TypeAdapter(Annotated[ServerOptimizer, Field(discriminator="kind")])
_KINDS: dict[str, type[Settings]] = {
    table.model_fields["kind"].default: table
    for table in (NoServerOptimizer, ServerMomentum, ServerAdam, ServerYogi, ServerAdagrad)
}


def table_of(value: str | Mapping[str, Any]) -> dict[str, Any]:
    """`"adamw:weight_decay=0.01"` or a table → the table, with its kind.

    >>> table_of("adamw:weight_decay=0.01")
    {'kind': 'adamw', 'weight_decay': 0.01}
    """
    if not isinstance(value, str):
        return dict(value)
    kind, settings = split_expression(value)
    return {"kind": kind, **settings}


def server_optimizer(value: "str | Mapping[str, Any] | ServerOptimizer | None") -> ServerOptimizer:
    """`value` as the server's optimiser: settings, a table, or an expression.

    >>> server_optimizer("adam:lr=0.01")
    ServerAdam(kind='adam', lr=0.01, beta_1=0.9, beta_2=0.99, tau=0.001)
    """
    if value is None or isinstance(value, Settings):
        return NoServerOptimizer() if value is None else value
    if not isinstance(value, str | Mapping):
        advice = "give a name such as 'adam', or a table such as {'kind': 'adam', 'lr': 0.01}"
        raise InputError(f"server_optimizer is a {type(value).__name__}: {advice}")
    table = table_of(value)
    kind = table.get("kind")
    if kind not in _KINDS:
        hint = did_you_mean(str(kind), _KINDS)
        raise InputError(f"server_optimizer must be one of {', '.join(_KINDS)}, got {kind!r}{hint}")
    require_settings(f"server_optimizer {kind!r}", table, _KINDS[kind].model_fields)
    try:
        return _ADAPTER.validate_python(table)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InputError(f"server_optimizer.{first['loc'][-1]}: {first['msg']}, got {first['input']!r}") from None

"""The typed configuration of a run ← task preset, TOML file, `--set key=value`, in that order.

An unknown key is an error. A table with a `kind` starts from that kind's own defaults when the kind changes.
"""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import Field, ValidationError, model_validator

from gammafl.core.errors import InputError
from gammafl.core.method import Method
from gammafl.methods.registry import method_named, split_expression
from gammafl.settings import (
    Checkpoint,
    ConstantStepsize,
    ContiguousPartition,
    DirichletPartition,
    EvaluationSettings,
    ExponentialAverage,
    ExponentialStepsize,
    Faults,
    IidPartition,
    Input,
    InverseStepsize,
    LabelPartition,
    NaturalPartition,
    NoAverage,
    Partition,
    Settings,
    TailAverage,
    UploadLimits,
    Wire,
)
from gammafl.wording import in_one_line

__all__ = [
    "ONLY_SPEED",
    "Checkpoint",
    "ConstantStepsize",
    "ContiguousPartition",
    "DirichletPartition",
    "EvaluationSettings",
    "ExponentialAverage",
    "ExponentialStepsize",
    "Faults",
    "IidPartition",
    "Input",
    "InverseStepsize",
    "LabelPartition",
    "NaturalPartition",
    "NoAverage",
    "Partition",
    "RunConfig",
    "Settings",
    "Table",
    "TailAverage",
    "UploadLimits",
    "Wire",
    "described",
    "flat",
    "make_config",
    "merge",
    "parse_settings",
    "read_toml",
    "result_settings",
    "to_toml",
]

Table = dict[str, Any]

ONLY_SPEED = frozenset({"threads", "residual_memory_mb", "checkpoint.every_seconds"})
"""The settings that change how fast a run is and what memory it takes, and not a byte of what comes out: a run may go
on with others, and is the same run."""


class RunConfig(Settings):
    """Everything a run depends on: the same configuration gives the same bytes."""

    task: str = Field(..., description="a name, see: gammafl tasks")
    method: str = Field("gamma-fedht", description="a name, see: gammafl methods; or file.py:function")
    keep: float = Field(0.01, gt=0, le=1, description="the kept fraction, for methods that take one")
    seed: int = Field(0, ge=0, description="of everything random")
    iterations: int = Field(..., ge=1, description="T")
    local_steps: int = Field(5, ge=1, description="E: local steps a round")
    clients: int = Field(10, ge=1, description="n")
    participation: float = Field(0.5, gt=0, le=1, description="share of the clients that a round picks")
    batch_size: int = Field(50, ge=1, description="samples of a local step")
    weights: Literal["paper", "normalized"] = Field("paper", description="(n/|S|)·p_i, or divided by their sum")
    initialisation: Literal["torch", "lecun"] = Field("torch", description="torch's own, or variance 1/inputs")
    sequence: int = Field(256, ge=2, description="text: tokens of a sample")
    pretrained: str | None = Field(
        None, description="text: GPT-2's weights, a directory or a hub's name; unset: random"
    )
    residual_memory_mb: float | None = Field(
        None, ge=0, description="memory for the clients' residuals; further ones are mapped from disk"
    )
    threads: int | None = Field(None, ge=1, description="clients that train at a time; unset: one a core")
    stepsize: Annotated[InverseStepsize | ExponentialStepsize | ConstantStepsize, Field(discriminator="kind")] = (
        InverseStepsize()
    )
    compression: dict[str, bool | int | float | str] = Field(
        {}, description="other settings of the method, see: gammafl methods NAME"
    )
    partition: Annotated[Partition, Field(discriminator="kind")] = LabelPartition()
    averaging: Annotated[TailAverage | ExponentialAverage | NoAverage, Field(discriminator="kind")] = TailAverage()
    input: Input = Input()
    evaluation: EvaluationSettings = EvaluationSettings()
    wire: Wire = Wire()
    checkpoint: Checkpoint = Checkpoint()
    faults: Faults = Faults()
    limits: UploadLimits = UploadLimits()

    @model_validator(mode="before")
    @classmethod
    def _split_expression(cls, table: Any) -> Any:
        """`method = "top-k:k=5"` means method = "top-k" and compression.k = 5."""
        if isinstance(table, dict) and isinstance(method := table.get("method"), str):
            name, settings = split_expression(method)
            given = table.get("compression", {})
            if settings and isinstance(given, dict):
                return {**table, "method": name, "compression": {**given, **settings}}
        return table

    @model_validator(mode="after")
    def _consistent(self) -> "RunConfig":
        self.resolved_method()
        if self.iterations % self.local_steps:
            raise ValueError(
                f"iterations ({self.iterations}) must be a multiple of local_steps ({self.local_steps}):"
                " a round is local_steps iterations"
            )
        return self

    def resolved_method(self) -> Method:
        """The method with its settings."""
        return method_named(self.method, self.compression, keep=self.keep)

    @property
    def stepsize_multiplier(self) -> float:
        """The paper divides γ by 10 at n = 100."""
        chosen = getattr(self.stepsize, "multiplier", 1.0)
        return chosen if chosen is not None else (0.1 if self.clients >= 100 else 1.0)

    @property
    def rounds(self) -> int:
        return self.iterations // self.local_steps

    @property
    def participants(self) -> int:
        """|S|: clients a round, at least one."""
        return max(1, round(self.participation * self.clients))


def make_config(*layers: Mapping[str, Any]) -> RunConfig:
    """The configuration from tables of increasing priority, or an `InputError` of one line."""
    merged = {k: f.default.model_dump() for k, f in RunConfig.model_fields.items() if isinstance(f.default, Settings)}
    for layer in layers:
        merged = merge(merged, layer)
    try:
        return RunConfig.model_validate(merged)
    except ValidationError as error:
        raise InputError(in_one_line(error, RunConfig)) from None


def read_toml(path: Path) -> Table:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise InputError(f"can't read the configuration {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None


def to_toml(config: RunConfig) -> str:
    """The complete configuration; what is unset is left out."""
    return tomli_w.dumps(config.model_dump(exclude_none=True))


def described(config: Settings, prefix: str = "") -> list[list[str]]:
    """(key, value, meaning) of every setting, tables spelled out."""
    rows = []
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if isinstance(value, Settings):
            rows += described(value, f"{prefix}{name}.")
        else:
            meaning = field.description or (type(config).__doc__ if name == "kind" else "") or ""
            rows.append([prefix + name, "" if value is None else str(value), meaning])
    return rows


def parse_settings(settings: Sequence[str]) -> Table:
    """`["partition.classes=3", "task=x"]` → nested tables; a value is TOML, or a plain word."""
    table: Table = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise InputError(f"--set takes key=value, such as --set partition.classes=3; got {setting!r}")
        place = table
        *path, last = key.strip().split(".")
        for part in path:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise InputError(f"--set gives {part} a value and keys of its own; it is either or")
        place[last] = _value(text.strip())
    return table


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text


def flat(table: Mapping[str, Any], prefix: str = "") -> Table:
    """Tables in tables as one, with the keys that --set takes: {"partition.classes": 3}."""
    made: Table = {}
    for key, value in table.items():
        made |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return made


def result_settings(config: RunConfig) -> Table:
    """All settings that what comes out depends on, flat."""
    return {key: value for key, value in flat(config.model_dump()).items() if key not in ONLY_SPEED}


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> Table:
    """`base` with what `over` says; a table with another `kind` replaces the one before."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, Mapping):
            fresh = "kind" in value and value["kind"] != old.get("kind")
            merged[key] = dict(value) if fresh else merge(old, value)
        else:
            merged[key] = value
    return merged

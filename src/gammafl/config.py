"""The typed configuration of a run ← task preset, TOML file, `--set key=value`, in that order.

An unknown key is an error. A table with a `kind` starts from that kind's own defaults when the kind changes.
"""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, ValidationError, model_validator

from gammafl.core.errors import InputError
from gammafl.core.names import METHOD_NAMES, did_you_mean
from gammafl.wording import in_one_line

Table = dict[str, Any]
Share = Annotated[float, Field(ge=0, le=1)]
MULTIPLIER = "unset: 1, and 0.1 from 100 clients on, as in the paper"


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class InverseStepsize(Settings):
    """γ_t = multiplier · scale / (t + offset)."""

    kind: Literal["inverse"] = "inverse"
    scale: float = Field(100, gt=0)
    offset: float = Field(1000, gt=0)
    multiplier: float | None = Field(None, gt=0, description=MULTIPLIER)


class ExponentialStepsize(Settings):
    """γ_t = multiplier · initial · rate^(t/E)."""

    kind: Literal["exponential"] = "exponential"
    initial: float = Field(0.1, gt=0)
    rate: float = Field(0.999, gt=0, le=1)
    multiplier: float | None = Field(None, gt=0, description=MULTIPLIER)


class ConstantStepsize(Settings):
    """γ_t = value."""

    kind: Literal["constant"] = "constant"
    value: float = Field(0.1, gt=0)


class IidPartition(Settings):
    """Samples dealt at random, in equal shares."""

    kind: Literal["iid"] = "iid"


class LabelPartition(Settings):
    """#C=k: each client holds samples of `classes` labels."""

    kind: Literal["labels"] = "labels"
    classes: int = Field(2, ge=1, description="labels a client holds")
    scheme: Literal["niid-bench", "equal"] = Field("niid-bench", description="shards of unequal or of equal size")


class DirichletPartition(Settings):
    """Each label's samples are spread over the clients by a draw of Dirichlet(concentration)."""

    kind: Literal["dirichlet"] = "dirichlet"
    concentration: float = Field(0.5, gt=0)


class NaturalPartition(Settings):
    """By the data's own groups: a client within one group, or whole groups where there are more of them."""

    kind: Literal["natural"] = "natural"


class ContiguousPartition(Settings):
    """Neighbouring samples together, such as whole documents of a text, in equal shares."""

    kind: Literal["contiguous"] = "contiguous"


class TailAverage(Settings):
    """Mean of the server's model over the last `fraction` of the rounds."""

    kind: Literal["tail"] = "tail"
    fraction: float = Field(0.1, gt=0, le=1)


class ExponentialAverage(Settings):
    """average ← decay·average + (1 − decay)·model, every round."""

    kind: Literal["exponential"] = "exponential"
    decay: float = Field(0.99, ge=0, lt=1)


class NoAverage(Settings):
    kind: Literal["none"] = "none"


class Compression(Settings):
    """What the method is made from. Unset: calibrated from `keep` as in the paper's Table II."""

    keep: float = Field(0.01, gt=0, le=1, description="k as a fraction of d, from which λ and λ_0 follow")
    k: StrictInt | StrictFloat | None = Field(
        None, description="Top-k and STC: count (int) or fraction (float) instead of keep"
    )
    threshold: float | None = Field(None, ge=0, description="λ of HT")
    initial_threshold: float | None = Field(None, ge=0, description="λ_0 of γ-FedHT")
    alpha: float = Field(1, gt=0, description="α of λ_t")
    units: Literal["update", "gradient"] = Field("update", description="λ_t on the update, or λ_t·γ_t")
    scope: Literal["global", "tensor"] = Field("global", description="Top-k and STC: of the model or of each tensor")
    values: Literal["f32", "f16"] = Field("f32", description="precision of the values that are not ternary")

    @model_validator(mode="after")
    def _k_is_count_or_fraction(self) -> "Compression":
        if isinstance(self.k, float) and not 0 < self.k <= 1:
            raise ValueError(f"compression.k must be a count (whole number) or a fraction in (0, 1], got {self.k}")
        if isinstance(self.k, int) and self.k < 0:
            raise ValueError(f"compression.k must not be negative, got {self.k}")
        return self


class Input(Settings):
    """How images become numbers."""

    resize: Literal["bilinear", "pad"] = Field("bilinear", description="28×28 → 32×32")
    augment: bool = Field(False, description="training images are cropped and mirrored at random")
    mean: tuple[float, ...] = (0.1307,)
    std: tuple[Annotated[float, Field(gt=0)], ...] = (0.3081,)


class EvaluationSettings(Settings):
    every: int = Field(20, ge=1, description="rounds between two evaluations")
    samples: int | None = Field(None, ge=1, description="only the first of the test set, where it is large")
    last: int = Field(30, ge=1, description="evaluations that `last_mean` is the mean of")


class Wire(Settings):
    positions: Literal["auto", "rice", "bitmap", "raw"] = Field("auto", description="auto: the smallest")


class Checkpoint(Settings):
    every_seconds: float = Field(10, ge=0, description="time between checkpoints; 0: after every round")


class Faults(Settings):
    """What goes wrong with a client that a round picked, by chance and by the seed; one thing at the most."""

    absent: Share = Field(0.0, description="it never begins")
    killed: Share = Field(0.0, description="it dies when its upload is ready, before it leaves")
    lost: Share = Field(0.0, description="its upload gets lost")
    late: Share = Field(0.0, description="its upload comes after the deadline")
    repeated: Share = Field(0.0, description="its upload arrives twice")
    corrupted: Share = Field(0.0, description="a byte of its upload is changed on the way")
    not_finite: Share = Field(0.0, description="its training ends in NaN")
    confirmed: bool = Field(True, description="an upload that did not count returns; false: it is thought sent")

    @model_validator(mode="after")
    def _at_most_one(self) -> "Faults":
        if self.total > 1:
            raise ValueError(f"the shares of faults must add up to at most 1, got {self.total:g}")
        return self

    @property
    def shares(self) -> dict[str, float]:
        """Kind of fault → its probability."""
        return {name: value for name, value in self if isinstance(value, float)}

    @property
    def total(self) -> float:
        return sum(self.shares.values())


class UploadLimits(Settings):
    """What one upload may be at the most, so that no client can move the model as it likes. Unset: no limit."""

    entries: int | None = Field(None, ge=1, description="kept values")
    norm: float | None = Field(None, gt=0, description="Euclidean norm")


Partition = LabelPartition | IidPartition | DirichletPartition | NaturalPartition | ContiguousPartition


class RunConfig(Settings):
    """Everything a run depends on: the same configuration gives the same bytes."""

    task: str = Field(..., description="a name, see: gammafl tasks")
    method: str = Field("gamma-fedht", description=", ".join(METHOD_NAMES))
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
    compression: Compression = Compression()
    partition: Annotated[Partition, Field(discriminator="kind")] = LabelPartition()
    averaging: Annotated[TailAverage | ExponentialAverage | NoAverage, Field(discriminator="kind")] = TailAverage()
    input: Input = Input()
    evaluation: EvaluationSettings = EvaluationSettings()
    wire: Wire = Wire()
    checkpoint: Checkpoint = Checkpoint()
    faults: Faults = Faults()
    limits: UploadLimits = UploadLimits()

    @model_validator(mode="after")
    def _consistent(self) -> "RunConfig":
        if self.method not in METHOD_NAMES:
            raise ValueError(f"no method {self.method!r}{did_you_mean(self.method, METHOD_NAMES)}")
        if self.iterations % self.local_steps:
            raise ValueError(
                f"iterations ({self.iterations}) must be a multiple of local_steps ({self.local_steps}):"
                " a round is local_steps iterations"
            )
        return self

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
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
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
    except tomllib.TOMLDecodeError:
        return text


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

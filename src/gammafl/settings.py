"""The tables of a run's configuration: what may be set, its bounds and its meaning."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

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

"""The settings of a run: all keys with their bounds and meanings."""

import math
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from gammafl.config.budget import Budgets
from gammafl.config.link import Link
from gammafl.config.link_trace import Links, as_links, is_trace
from gammafl.config.optimizers import LocalOptimizer, NoServerOptimizer, ServerOptimizer
from gammafl.config.privacy import Privacy
from gammafl.config.settings import Settings
from gammafl.core.method import Method
from gammafl.methods.files import is_file
from gammafl.methods.registry import method_named, split_expression
from gammafl.methods.ways import Way, way_down

Sampler = Literal["replacement", "epochs", "epochs-fixed"]
Precision = Literal["f32", "bf16", "f16"]
"""The precision of local steps: that of the weights, or torch's autocast."""

Share = Annotated[float, Field(ge=0, le=1)]
MULTIPLIER = "unset: 1, or 0.1 with 100 clients or more, as in the paper"


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
    """Samples divided at random, in equal shares."""

    kind: Literal["iid"] = "iid"


class LabelPartition(Settings):
    """#C=k: each client holds samples of `classes` labels."""

    kind: Literal["labels"] = "labels"
    classes: int = Field(2, ge=1, description="how many labels a client holds")
    scheme: Literal["niid-bench", "equal", "cyclic"] = Field(
        "niid-bench",
        description="niid-bench: shards of unequal size; equal: of equal size; cyclic: client i holds labels "
        "i … i+k−1, in equal shares",
    )


class DirichletPartition(Settings):
    """Each label's samples are divided among the clients by shares drawn from Dirichlet(concentration)."""

    kind: Literal["dirichlet"] = "dirichlet"
    concentration: float = Field(0.5, gt=0)


class NaturalPartition(Settings):
    """By the data's own groups: a client has samples of one group, or whole groups if there are more groups."""

    kind: Literal["natural"] = "natural"


class ContiguousPartition(Settings):
    """Consecutive samples together, such as whole documents of a text, in equal shares."""

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
    """How images are prepared."""

    resize: Literal["bilinear", "pad"] = Field("bilinear", description="28×28 → 32×32")
    augment: bool = Field(False, description="training images are cropped and mirrored at random")
    mean: tuple[float, ...] = (0.1307,)
    std: tuple[Annotated[float, Field(gt=0)], ...] = (0.3081,)


class EvaluationSettings(Settings):
    every: int = Field(20, ge=1, description="rounds between two evaluations")
    tail_every: int | None = Field(
        None,
        ge=1,
        description="rounds between two evaluations in the last fifth of the run; unset: as `every`",
    )
    samples: int | None = Field(None, ge=1, description="evaluate only this many samples, the first of the test set")
    last: int = Field(
        30, ge=1, description="how many evaluations `last_mean` averages; with tail_every, only those of the last fifth"
    )

    @property
    def every_in_tail(self) -> int:
        """The rounds between two evaluations in the last fifth."""
        return min(self.every, self.tail_every or self.every)

    def in_tail(self, round_number: int, rounds: int) -> bool:
        """Whether `tail_every` applies to this round: it is set, and the round is in the last fifth."""
        return self.tail_every is not None and 5 * (rounds - round_number) < rounds

    def due(self, round_number: int, rounds: int) -> bool:
        """Whether the model is evaluated after this round. After the last one it always is.

        In the last fifth, rounds are counted from the end, so that the distance between evaluations is the same.
        """
        if self.in_tail(round_number, rounds):
            return (rounds - round_number) % self.every_in_tail == 0
        return round_number % self.every == 0 or round_number == rounds


class Wire(Settings):
    positions: Literal["auto", "rice", "bitmap", "raw"] = Field(
        "auto", description="coding of positions; auto: the smallest"
    )


class Checkpoint(Settings):
    every_seconds: float = Field(10, ge=0, description="time between checkpoints; 0: after every round")


class Faults(Settings):
    """Injected faults: the probability of each, drawn for each picked client from the seed; at most one at a time."""

    absent: Share = Field(0.0, description="the client never begins")
    killed: Share = Field(0.0, description="the client dies after it has made its upload, before it sends it")
    lost: Share = Field(0.0, description="its upload is lost")
    late: Share = Field(0.0, description="its upload arrives after the deadline")
    repeated: Share = Field(0.0, description="its upload arrives twice")
    corrupted: Share = Field(0.0, description="a byte of its upload is changed on the way")
    not_finite: Share = Field(0.0, description="its training ends in NaN")
    forgetful: Share = Field(0.0, description="its stored view of the model is lost, so it needs the whole model")
    confirmed: bool = Field(True, description="a client gets a lost upload back; false: it believes that it arrived")

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
    """The largest accepted upload: it bounds how far one client can move the model. Unset: no limit."""

    entries: int | None = Field(None, ge=1, description="the number of kept values")
    norm: float | None = Field(None, gt=0, description="its Euclidean norm")
    learnt_norm: float | None = Field(
        None, gt=1, description="the same as a factor: times the clients' median norm, which the server learns"
    )


class PrivacySettings(Settings):
    """Differential privacy of clients, see docs/privacy.md. Unset: none."""

    clip: float | None = Field(None, gt=0, description="C: the largest Euclidean norm of an upload, with its residual")
    noise: float | None = Field(
        None, gt=0, description="z: the standard deviation of the noise on a round's sum of uploads, in units of C"
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="δ of the ε that is reported")

    @model_validator(mode="after")
    def _both(self) -> "PrivacySettings":
        if (self.clip is None) != (self.noise is None):
            raise ValueError("privacy needs both clip and noise")
        return self

    def resolved(self) -> Privacy | None:
        """The privacy for the round loop; None if it is unset."""
        if self.clip is None or self.noise is None:
            return None
        return Privacy(self.clip, self.noise, self.delta)


Partition = LabelPartition | IidPartition | DirichletPartition | NaturalPartition | ContiguousPartition

ONLY_SPEED = frozenset({"threads", "residual_memory_mb", "device_memory_mb", "checkpoint.every_seconds"})
"""The settings that change only the speed and the memory of a run, not its results. A run may be resumed with other
values of these, and is the same run."""


class RunConfig(Settings):
    """All settings of a run. The same configuration gives the same bytes."""

    task: str = Field(..., description="a name, see: gammafl tasks")
    method: str = Field("gamma-fedht", description="a name, see: gammafl methods; or file.py:function")
    keep: float = Field(0.01, gt=0, le=1, description="the kept fraction, for methods that take one")
    seed: int = Field(0, ge=0, description="the seed of all random numbers")
    iterations: int = Field(..., ge=1, description="T: the number of local steps of the run")
    local_steps: int = Field(5, ge=1, description="E: the number of local steps in a round")
    clients: int = Field(10, ge=1, description="n: the number of clients")
    participation: float = Field(0.5, gt=0, le=1, description="share of the clients that a round picks")
    batch_size: int = Field(50, ge=1, description="samples in a local step")
    sampler: Sampler = Field(
        "replacement",
        description="replacement: samples are drawn at random each time; epochs: passes over the client's samples, "
        "each in a new order; epochs-fixed: every pass in the same order. A pass continues in the client's next "
        "round",
    )
    weights: Literal["paper", "normalized"] = Field("paper", description="(n/|S|)·p_i, or divided by their sum")
    initialisation: Literal["torch", "lecun"] = Field("torch", description="torch's own, or variance 1/inputs")
    sequence: int = Field(256, ge=2, description="text: tokens in a sample")
    pretrained: str | None = Field(
        None, description="text: GPT-2's weights, a directory or a hub's name; unset: random"
    )
    residual_memory_mb: float | None = Field(
        None, ge=0, description="memory for the clients' residuals; others are on disk, mapped into memory"
    )
    device: str = Field(
        "cpu",
        min_length=1,
        description="the device of model, samples and local training: cpu, cuda, cuda:1, mps, xpu, …",
    )
    precision: Precision = Field(
        "f32", description="the precision of local steps: f32, or bf16 or f16 with torch's autocast"
    )
    device_memory_mb: float | None = Field(
        None,
        ge=0,
        description="memory for the clients' residuals on the device; others are on the host, to which each update "
        "of their clients is copied. Unset: all are on the device",
    )
    fast: bool = Field(
        True, description="use compiled loops instead of torch for models that have such loops; false: only torch"
    )
    threads: int | None = Field(None, ge=1, description="how many clients train at a time; unset: one per core")
    stepsize: Annotated[InverseStepsize | ExponentialStepsize | ConstantStepsize, Field(discriminator="kind")] = (
        InverseStepsize()
    )
    optimizer: LocalOptimizer = LocalOptimizer()
    proximal: float = Field(0.0, ge=0, description="FedProx's μ: μ/2·‖x − x_round‖² is added to the local objective")
    server_optimizer: Annotated[ServerOptimizer, Field(discriminator="kind")] = NoServerOptimizer()
    downlink: str = Field(
        "full",
        description="what clients are sent of the model. full: all of it; changes: the values that changed since "
        "they last got it; a method, such as gamma-fedht-q:keep=0.04: the compressed difference to the model that "
        "clients have",
    )
    budget: str | list[str] | dict[str, str] | None = Field(
        None,
        description="what clients may send: 64 kB/upload limits each upload, 20 MB/run the sum of all uploads, 2 "
        "kB/s with 30 s/round the rate of a client; separate several by commas. A table has single clients, and all: "
        'budget.all="20 MB/run"',
    )
    link: str | None = Field(
        None,
        description="the link between clients and server, for a virtual clock that changes no result: '1 Mbit/s up, "
        "10 Mbit/s down, 50 ms, 0.5 s compute', or a file links.csv, see docs/link.md",
    )
    compression: dict[str, bool | int | float | str] = Field(
        {},
        description="other settings of the method, see: gammafl methods NAME. level: 'paper' by default for tasks of "
        "gammafl, 'upload' for your own",
    )
    partition: Annotated[Partition, Field(discriminator="kind")] = LabelPartition()
    averaging: Annotated[TailAverage | ExponentialAverage | NoAverage, Field(discriminator="kind")] = TailAverage()
    input: Input = Input()
    evaluation: EvaluationSettings = EvaluationSettings()
    wire: Wire = Wire()
    checkpoint: Checkpoint = Checkpoint()
    faults: Faults = Faults()
    limits: UploadLimits = UploadLimits()
    privacy: PrivacySettings = PrivacySettings()

    @model_validator(mode="before")
    @classmethod
    def _split_expression(cls, table: Any) -> Any:
        """`method = "top-k:k=5"` means method = "top-k" and compression.k = 5."""
        if isinstance(table, dict) and isinstance(method := table.get("method"), str):
            name, settings = split_expression(method)
            given = table.get("compression", {})
            for key, value in {**(given if isinstance(given, dict) else {}), **settings}.items():
                if isinstance(value, float) and not math.isfinite(value):
                    raise ValueError(f"{name}: {key} must be a finite number, got {value}")
            if settings and isinstance(given, dict):
                return {**table, "method": name, "compression": {**given, **settings}}
        return table

    @field_validator("link")
    @classmethod
    def _one_text_for_a_link(cls, text: str | None) -> str | None:
        """Brings a link's text into its usual form. A trace is read later, when the run begins."""
        return text if text is None or is_trace(text) else str(Link.parse(text))

    @model_validator(mode="after")
    def _consistent(self) -> "RunConfig":
        self.resolved_method()
        self.resolved_downlink()
        self.resolved_budgets()
        if self.iterations % self.local_steps:
            raise ValueError(
                f"iterations ({self.iterations}) must be a multiple of local_steps ({self.local_steps}):"
                " a round is local_steps iterations"
            )
        return self

    def resolved_method(self) -> Method:
        """The method with its settings."""
        return method_named(self.method, self.compression, keep=self.keep, level=self.usual_level)

    def resolved_downlink(self) -> Way:
        """The downlink."""
        return way_down(self.downlink, keep=self.keep, level=self.usual_level)

    def resolved_link(self) -> Links | None:
        """The links for the virtual clock, read from the trace if there is one."""
        return None if self.link is None else as_links(self.link)

    def resolved_budgets(self) -> Budgets:
        """The budgets of the clients."""
        return Budgets.of(self.budget, self.clients)

    @property
    def usual_level(self) -> str:
        """The level of a method without one. The package's tasks are the paper's, and use its calibration."""
        return "upload" if is_file(self.task) else "paper"

    @property
    def stepsize_multiplier(self) -> float:
        """The factor of γ. The paper divides γ by 10 for n = 100."""
        chosen = getattr(self.stepsize, "multiplier", 1.0)
        return chosen if chosen is not None else (0.1 if self.clients >= 100 else 1.0)

    @property
    def rounds(self) -> int:
        return self.iterations // self.local_steps

    @property
    def participants(self) -> int:
        """|S|: the number of clients in a round, at least one."""
        return max(1, round(self.participation * self.clients))

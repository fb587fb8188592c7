"""The results of a run: a record of each round (rounds.jsonl) and a summary (summary.json)."""

from html import escape
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from pydantic import ConfigDict, Field, model_validator

from gammafl.federated.units import show_bytes, show_duration, show_metric
from gammafl.files.reading import Count, Facts

LONG_NAME = 120
"""The most letters of a method's name that are shown."""


class Product(Facts):
    """A result of a run. The attributes are the keys of a JSON object.

    A new field needs a default, so that files of earlier versions stay readable. Fields of later versions are kept.
    """

    model_config = ConfigDict(extra="allow", allow_inf_nan=True)

    def table(self) -> dict[str, Any]:
        """Name → value of the fields that are written to a file."""
        return self.model_dump()

    if not TYPE_CHECKING:  # a type checker finds these mistakes without this

        def __getitem__(self, key: str) -> NoReturn:
            raise TypeError(f"a {type(self).__name__} has attributes: write .{key}, not [{key!r}]")

        def __contains__(self, key: str) -> NoReturn:
            raise TypeError(f"a {type(self).__name__} has attributes: write .{key} is not None, not {key!r} in it")


class RoundRecord(Product):
    """A finished round. No field depends on the clock: a resumed run writes the same.

    >>> record = RoundRecord(round=1, iteration=5, participants=[0, 3], train_loss=2.3, kept=10, uplink_bytes=65)
    >>> record.kept, record.evaluated
    (10, False)
    """

    round: Count
    """The number of the round, counted from 1."""

    iteration: Count
    """t at the end of the round."""

    participants: Annotated[list[Count], Field(min_length=1)]
    """The clients that were picked."""

    train_loss: float | None
    """The mean training loss of the clients whose upload arrived; None if none arrived."""

    kept: Count
    """Entries of all uploads that counted."""

    uplink_bytes: Count
    """Bytes of all uploads that counted."""

    refused: dict[str, str] = Field({})
    """Client → why its upload was refused."""

    downlink_bytes: Count = 0
    """Bytes of the model, or of its changes, that the participants were sent."""

    link_seconds: float | None = None
    """Seconds on the virtual clock from the beginning of the run to the end of the round; None without a link."""

    missing: Count = 0
    """Participants whose upload did not count: it did not arrive, or was refused."""

    capped: Count = 0
    """Uploads that counted and were cut to a budget. The rest is sent later."""

    norm_limit: float | None = None
    """The bound on the norm, if the server learns one; None before it is known."""

    warnings: list[str] = Field([])
    """What is wrong with the training, and what helps. Each warning comes once."""

    loss: float | None = None
    """The test loss of the model that clients hold, if the round ended with an evaluation."""

    metric: float | None = None
    averaged_loss: float | None = None
    """The test loss of the averaged model, if there is one."""

    averaged_metric: float | None = None
    metrics: dict[str, float] = Field({})
    """Name → further metric, if the task has some."""

    averaged_metrics: dict[str, float] = Field({})
    server_loss: float | None = None
    """The test loss of the server's own model, if clients hold another one, without the part not sent yet."""

    server_metric: float | None = None
    view_distance: float | None = None
    """‖x − y‖/‖x‖ of the server's model x and the model y that clients hold."""

    @model_validator(mode="after")
    def _whole_evaluations(self) -> "RoundRecord":
        both = (self.loss is None) == (self.metric is None)
        if not both or (self.averaged_loss is None) != (self.averaged_metric is None):
            raise ValueError("an evaluation needs both a loss and a metric")
        return self

    @property
    def evaluated(self) -> bool:
        """Whether the round ended with an evaluation."""
        return self.metric is not None

    def table(self) -> dict[str, Any]:
        """The fields that differ from a usual round without evaluation."""
        return self.model_dump(exclude_defaults=True)

    def __repr__(self) -> str:
        return f"RoundRecord({', '.join(f'{name}={value!r}' for name, value in self.table().items())})"


class Summary(Product):
    """The results of a run.

    Sizes are in bytes and measured on the messages that were sent. `*_per_client` is the size for a client that takes
    part in every round. One exception: `value_bytes_per_client` counts only the kept values, without positions, as the
    paper's tables do.
    """

    task: str
    method: str
    seed: Count
    dim: Count
    iterations: Count
    rounds: Count
    clients: Count
    participants: Count
    """How many clients a round picks."""

    metric: str
    """The name of the metric in `final`, `last_mean`, `best` and `averaged`: "accuracy", "perplexity", …"""

    higher_is_better: bool | None = None
    """Whether a higher metric is better; None in summaries from before version 0.2."""

    final: float
    last_mean: float
    """The mean of the last `last_count` evaluations."""

    last_count: Count
    best: float
    """The best of all `evaluations`. Note that it is chosen on the test set."""

    evaluations: Count | None = None
    stopped: str | None = None
    """Why a callback ended the run early. Then `rounds` and `iterations` were run, of `planned_rounds`."""

    planned_rounds: Count | None = None
    averaged: float | None
    """The metric of the averaged model; None if there is none."""

    metrics: dict[str, float] = Field({})
    """Name → further metric of the last evaluation, if the task has some."""

    averaged_metrics: dict[str, float] = Field({})
    server: float | None = None
    """The last metric of the server's own model, if clients hold another one."""

    final_loss: float
    averaged_loss: float | None
    kept_fraction: float
    kept_per_upload: float
    uplink_bytes: Count
    uplink_bytes_per_client: float
    downlink_bytes: Count = 0
    downlink_bytes_per_client: float = 0.0
    link_seconds: float | None = None
    """The run's seconds on the virtual clock (docs/link.md); None without a link."""

    value_bytes_per_client: float
    dense_bytes_per_client: Count
    """What a client would send without compression."""

    epsilon: float | None = None
    """ε at δ = `delta`, for a client that was asked in every round; None without differential privacy."""

    delta: float | None = None
    refused_uploads: Count
    missing_uploads: Count
    wall_seconds: float = Field(gt=0)
    setup_seconds: float = 0.0
    """This and the following `*_seconds` are parts of `wall_seconds`."""

    sampling_seconds: float = 0.0
    training_seconds: float = 0.0
    compression_seconds: float = 0.0
    server_seconds: float = 0.0
    bookkeeping_seconds: float = 0.0
    evaluation_seconds: float = 0.0
    peak_memory_bytes: Count = 0

    def table(self) -> dict[str, Any]:
        """Name → value. Fields for further metrics, a link, privacy and an early end are left out if not used."""
        fields = {name: value for name, value in self.model_dump().items() if value != {}}
        optional = ("higher_is_better", "link_seconds", "epsilon", "delta", "stopped", "planned_rounds")
        return {name: value for name, value in fields.items() if value is not None or name not in optional}

    def essentials(self) -> dict[str, str]:
        """The most important results, as text."""
        metric, method = self.metric, self.method
        averaged = {} if self.averaged is None else {f"averaged {metric}": show_metric(metric, self.averaged)}
        of_dense = 100 * self.uplink_bytes_per_client / self.dense_bytes_per_client
        return {
            "task": self.task,
            "method": method if len(method) <= LONG_NAME else method[: LONG_NAME - 1] + "…",
            "rounds": str(self.rounds) if self.stopped is None else f"{self.rounds} of {self.planned_rounds}",
            **({} if self.stopped is None else {"stopped": self.stopped}),
            metric: show_metric(metric, self.final),
            **averaged,
            "uplink": f"{show_bytes(self.uplink_bytes)}, {of_dense:.3g}% of dense",
            **({} if self.link_seconds is None else {"on the link": show_duration(self.link_seconds)}),
            **({} if self.epsilon is None else {"privacy": f"ε = {self.epsilon:.3g} at δ = {self.delta:g}, a client"}),
        }

    def _repr_html_(self) -> str:
        """For notebooks."""
        shown = self.essentials()
        rows = (f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in shown.items())
        return f"<table>{''.join(rows)}</table>"

    def __repr__(self) -> str:
        return f"Summary({', '.join(f'{name}: {value}' for name, value in self.essentials().items())})"

    def __str__(self) -> str:
        return repr(self)  # pydantic's own would print all fields

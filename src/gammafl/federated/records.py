"""What a run gives its user: a record of each round (rounds.jsonl) and a summary (summary.json)."""

from html import escape
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from pydantic import ConfigDict, Field, model_validator

from gammafl.federated.units import show_bytes, show_duration, show_metric
from gammafl.files.reading import Count, Facts

LONG_NAME = 120
"""Letters of a method's name that are shown."""


class Product(Facts):
    """What a run gives its user, as attributes; the same fields are the keys of a JSON object.

    A new field needs a default, so that files of earlier versions can still be read. Fields of later versions are kept.
    """

    model_config = ConfigDict(extra="allow", allow_inf_nan=True)

    def table(self) -> dict[str, Any]:
        """The fields by name, as they are written to a file."""
        return self.model_dump()

    if not TYPE_CHECKING:  # a type checker finds these mistakes itself

        def __getitem__(self, key: str) -> NoReturn:
            raise TypeError(f"a {type(self).__name__} has attributes: write .{key} for [{key!r}]")

        def __contains__(self, key: str) -> NoReturn:
            raise TypeError(f"a {type(self).__name__} has attributes: write .{key} is not None for {key!r} in it")


class RoundRecord(Product):
    """What happened in a round. Nothing in it depends on the clock: a resumed run writes the same.

    >>> record = RoundRecord(round=1, iteration=5, participants=[0, 3], train_loss=2.3, kept=10, uplink_bytes=65)
    >>> record.kept, record.evaluated
    (10, False)
    """

    round: Count
    """Counted from 1."""

    iteration: Count
    """t at the end of the round."""

    participants: Annotated[list[Count], Field(min_length=1)]
    """The clients that were picked."""

    train_loss: float | None
    """The mean over the clients whose upload came; None if none came."""

    kept: Count
    """Entries of all uploads that counted."""

    uplink_bytes: Count
    """Bytes of all uploads that counted."""

    refused: dict[str, str] = Field({})
    """Client → why its upload was refused."""

    downlink_bytes: Count = 0
    """Bytes of what the participants were sent of the model."""

    link_seconds: float | None = None
    """On the virtual clock at the end of the round, from the beginning of the run; None where no link was given."""

    missing: Count = 0
    """Participants whose upload did not count: it did not come, or was refused."""

    capped: Count = 0
    """Uploads that counted and were cut to a budget: what had no room comes later."""

    norm_limit: float | None = None
    """What the norm of an upload could be, where the server learns that; None before it knows."""

    warnings: list[str] = Field([])
    """What is wrong with the training, and what helps; each is said once."""

    loss: float | None = None
    """Of the model that clients hold, on the test set, if this round ended with an evaluation."""

    metric: float | None = None
    averaged_loss: float | None = None
    """Of the averaged model, where there is one."""

    averaged_metric: float | None = None
    metrics: dict[str, float] = Field({})
    """Further metrics by name, where the task has some."""

    averaged_metrics: dict[str, float] = Field({})
    server_loss: float | None = None
    """Of the server's own model, where clients hold another one: it has also what they were not sent yet."""

    server_metric: float | None = None
    view_distance: float | None = None
    """‖x − y‖/‖x‖ of the server's model and what clients hold."""

    @model_validator(mode="after")
    def _whole_evaluations(self) -> "RoundRecord":
        both = (self.loss is None) == (self.metric is None)
        if not both or (self.averaged_loss is None) != (self.averaged_metric is None):
            raise ValueError("an evaluation has a loss and a metric")
        return self

    @property
    def evaluated(self) -> bool:
        """Whether the round ended with an evaluation."""
        return self.metric is not None

    def table(self) -> dict[str, Any]:
        """What is not as in a usual round without evaluation is written, nothing else."""
        return self.model_dump(exclude_defaults=True)

    def __repr__(self) -> str:
        return f"RoundRecord({', '.join(f'{name}={value!r}' for name, value in self.table().items())})"


class Summary(Product):
    """What a run came to.

    Sizes are in bytes; `*_per_client` is what a client sends that takes part in every round. Sizes are of the messages
    as they were sent, with one exception: `value_bytes_per_client` counts the kept values and no positions, as the
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
    """Clients that a round picks."""

    metric: str
    """What `final`, `last_mean`, `best` and `averaged` are: "accuracy", "perplexity", …"""

    higher_is_better: bool | None = None
    """Of the metric; None in summaries of before version 0.2."""

    final: float
    last_mean: float
    """The mean of the last `last_count` evaluations."""

    last_count: Count
    best: float
    """The best of all `evaluations`. It is picked on the test set."""

    evaluations: Count | None = None
    stopped: str | None = None
    """Why a callback ended the run; then `rounds` and `iterations` are what was run, of `planned_rounds`."""

    planned_rounds: Count | None = None
    averaged: float | None
    """The metric of the averaged model; None if there is none."""

    metrics: dict[str, float] = Field({})
    """The last evaluation by further metrics, where the task has some."""

    averaged_metrics: dict[str, float] = Field({})
    server: float | None = None
    """The last metric of the server's own model, where clients hold another one."""

    final_loss: float
    averaged_loss: float | None
    kept_fraction: float
    kept_per_upload: float
    uplink_bytes: Count
    uplink_bytes_per_client: float
    downlink_bytes: Count = 0
    downlink_bytes_per_client: float = 0.0
    link_seconds: float | None = None
    """What the run took on the virtual clock (docs/link.md); None where no link was given."""

    value_bytes_per_client: float
    dense_bytes_per_client: Count
    """What a client would send without compression."""

    epsilon: float | None = None
    """ε at `delta` of a client that was asked in every round; None where the run has no differential privacy."""

    delta: float | None = None
    refused_uploads: Count
    missing_uploads: Count
    wall_seconds: float = Field(gt=0)
    setup_seconds: float = 0.0
    """This and the following are parts of `wall_seconds`."""

    sampling_seconds: float = 0.0
    training_seconds: float = 0.0
    compression_seconds: float = 0.0
    server_seconds: float = 0.0
    bookkeeping_seconds: float = 0.0
    evaluation_seconds: float = 0.0
    peak_memory_bytes: Count = 0

    def table(self) -> dict[str, Any]:
        """Further metrics, seconds on a link, privacy, and an early end, are written where there are some."""
        fields = {name: value for name, value in self.model_dump().items() if value != {}}
        optional = ("higher_is_better", "link_seconds", "epsilon", "delta", "stopped", "planned_rounds")
        return {name: value for name, value in fields.items() if value is not None or name not in optional}

    def essentials(self) -> dict[str, str]:
        """What one wants to see first, as text."""
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

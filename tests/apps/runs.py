"""An app run in this process, with or without the two lines, and all that went over the wire."""

import random
import tempfile
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MessageType, MetricRecord
from flwr.common.serde import recorddict_to_proto
from flwr.serverapp.strategy import Result, Strategy

import gammafl as gf
from gammafl.core.arrays import Vector
from gammafl.flower.messages import UPDATE
from tests.apps.app import App, client_app, serve, server_test
from tests.apps.data import CLIENTS
from tests.flower.grid import Fate, InProcessGrid, arrives


@dataclass
class Upload:
    """A reply to a train message, as it went over the wire."""

    round: int
    message_bytes: int
    """All of the reply: arrays, metrics and what Flower and gammafl write around them."""

    kept: int | None
    """Entries in the upload; None for a whole model."""


@dataclass
class Played:
    """A run that is over."""

    result: Result
    strategy: Strategy
    uploads: list[Upload] = field(default_factory=list)

    def bytes_until(self, number: int) -> int:
        return sum(upload.message_bytes for upload in self.uploads if upload.round <= number)

    def scores(self, metric: str = "loss") -> dict[int, float]:
        """Round → the server's evaluation."""
        found = self.result.evaluate_metrics_serverapp
        return {number: float(str(metrics[metric])) for number, metrics in found.items()}

    @property
    def model(self) -> ArrayRecord:
        assert self.result.arrays is not None
        return self.result.arrays


def play(
    app: App,
    method: str | gf.Method | None,
    rounds: int,
    seed: int = 0,
    *,
    state_dir: Path | None = None,
    fate: Fate = arrives,
    inner: Iterable[Any] = (),
    score_at: Collection[int] | None = None,
    restart_after: int | None = None,
) -> Played:
    """Runs `app` for so many rounds; without a method, as it is without us.

    fate            of each reply, as in `InProcessGrid`
    inner           mods that see what the train function sees
    score_at        the rounds after which the server evaluates; by default all, and the initial model
    restart_after   after this round the memory of all clients is gone; their disks stay
    """
    if method is not None and state_dir is None:
        with tempfile.TemporaryDirectory() as folder:
            return play(app, method, rounds, seed, state_dir=Path(folder), fate=fate, inner=inner, score_at=score_at)
    random.seed(seed)  # Flower draws its nodes there, and its noise from numpy's
    np.random.seed(seed)
    ours = state_dir if method is not None else None
    uploads: list[Upload] = []

    def watched(message: Message, reply: Message) -> Message | None:
        if message.metadata.message_type == MessageType.TRAIN and reply.has_content() and reply.content.array_records:
            uploads.append(upload_of(message, reply))
        return fate(message, reply)

    grid = InProcessGrid(client_app(app, seed, ours, inner), CLIENTS, watched)
    evaluate = server_test(app, seed)

    def score(number: int, arrays: ArrayRecord) -> MetricRecord | None:
        if number == restart_after:
            restart(grid, client_app(app, seed, ours, inner))
        return evaluate(number, arrays) if score_at is None or number in score_at else None

    result, strategy = serve(app, grid, seed, rounds, method, score)
    return Played(result, strategy, uploads)


def upload_of(message: Message, reply: Message) -> Upload:
    number = int(str(message.content.config_records["config"]["server-round"]))
    size, arrays = recorddict_to_proto(reply.content).ByteSize(), reply.content.array_records["arrays"]
    return Upload(number, size, len(gf.decode(arrays[UPDATE].data)) if list(arrays) == [UPDATE] else None)


def restart(grid: InProcessGrid, fresh: Any) -> None:
    """Every node comes back under a new address, in the same order, with a new app and nothing in memory."""
    grid.app = fresh
    for node in sorted(grid.contexts):
        grid.restart(node, node + 1000)


def vector_of(record: ArrayRecord) -> Vector:
    """All floats of a model."""
    arrays = [array.numpy() for array in record.values()]
    return np.concatenate([values.reshape(-1) for values in arrays if values.dtype.kind == "f"])

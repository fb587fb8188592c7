"""A client's part of a round (Algorithm 1, lines 6-14), and what becomes of an upload that does not arrive."""

import zlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gammafl.core.aggregate import subtract
from gammafl.core.arrays import Vector
from gammafl.core.memory import RESIDUAL, ClientMemory
from gammafl.core.moment import Moment
from gammafl.core.scatter import root_mean_square
from gammafl.core.shifts import Shifts
from gammafl.core.sparse import SparseUpdate
from gammafl.core.wire import PositionCoding, decode
from gammafl.federated.budget import fit
from gammafl.federated.limits import NO_LIMITS, Limits
from gammafl.federated.task import LocalUpdate


class Report(NamedTuple):
    """What a client tells of its upload beside the upload itself."""

    smallest: float | None = None
    """The smallest magnitude that it keeps, before values are rounded; told where a level asks for it."""

    update_size: float | None = None
    residual_size: float | None = None
    """Root mean squares of the update and of what is left, from a sample; told now and then."""

    capped: bool | None = None
    """Whether there was no room for all that the method wanted to send."""


NO_REPORT = Report()
SIZED = 8
"""One in so many uploads tells sizes, by chance and by its key: they cost time."""


class Upload(NamedTuple):
    """What reaches the server from one client: bytes, and the client's own training loss."""

    client: int
    payload: bytes
    loss: float
    round: int = 0
    """The round that it belongs to."""

    report: Report = NO_REPORT


def make_payload(
    local: LocalUpdate,
    memory: ClientMemory,
    moment: Moment,
    limits: Limits = NO_LIMITS,
    positions: PositionCoding = "auto",
) -> tuple[bytes, Report]:
    """Compress with memory at the end of the round (lines 11-13), and encode (line 14)."""
    update = memory.propose(local.delta, moment, local.largest)
    fitted = fit(memory, update, moment, limits, positions)
    report = _report(local, memory, fitted.update, moment)
    return fitted.payload, report._replace(capped=True) if fitted.capped else report


def _report(local: LocalUpdate, memory: ClientMemory, update: SparseUpdate, moment: Moment) -> Report:
    """What there is to tell of `update`: what the method's level asks for, and now and then sizes."""
    level = memory.method.level
    asked, sized = level is not None and level.asks(moment), moment.key % SIZED == 0
    if not (asked or sized):
        return NO_REPORT
    residual = memory.state().get(RESIDUAL)
    smallest = _smallest(update, residual, moment) if asked else None
    if residual is None or not sized:
        return Report(smallest)
    update_size, residual_size = (root_mean_square(vector, moment.key) for vector in (local.delta, residual))
    return Report(smallest, update_size, residual_size)


def _smallest(update: SparseUpdate, residual: Vector | None, moment: Moment) -> float | None:
    """The smallest magnitude that `update` was made of, in the part that is compressed; None where that is nothing."""
    head = update.dim - (0 if moment.layout is None else moment.layout.tail)
    indices = update.indices[: np.searchsorted(update.indices, head)]
    rest = np.float32(0) if residual is None else residual[indices]  # what rounding took away
    return float(np.abs(update.values[: len(indices)] + rest).min()) if len(indices) else None


def start_after_loss(model: Vector, lost: SparseUpdate) -> Vector:
    """Where a client starts whose last upload did not count: the model as if it had, for this client alone.

    What was lost goes out again with the next upload. Starting from the bare model, the client would find most of it
    a second time, and the model would take the same step twice.
    """
    start = model.copy()
    subtract(start, [lost], [1.0])
    return start


@dataclass
class Outbox:
    """A memory where uploads can get lost: each is numbered, and open until the server says what became of it.

    All that the client computed is in the server's model, in the memory, or in the open upload.
    """

    memory: ClientMemory
    number: int = 0
    """Of the last upload; the first is 1."""

    open: bytes | None = None
    """The last upload, as long as nothing is known of it."""

    report: Report = NO_REPORT
    """What there is to tell of the last upload, when it is sent for the first time."""

    step: float = 1.0
    """`Moment.step` of the round that the open upload was made in."""

    made: int = 0
    """That round, where rounds have numbers."""

    tail: int = 0
    """How many elements at its end are statistics, which are sent whole."""

    counted: int = 0
    """The number of the last upload that the server said it had counted."""

    def is_ahead(self, accepted: int) -> bool:
        """Whether the server has forgotten an upload that a shift moved with: it went back to an older state."""
        return isinstance(self.memory.method.memory, Shifts) and accepted < self.counted

    def contradicts(self, accepted: int, checksum: int) -> bool:
        """Whether the server accepted uploads that this outbox never sent: it is an old copy, or has a double."""
        other = self.open is not None and accepted == self.number and checksum != zlib.crc32(self.open)
        return accepted > self.number or other

    def settle(self, accepted: int) -> SparseUpdate | None:
        """The server accepted upload `accepted` last: a later one returns to the memory.

        Returns what the server lacks of it.
        """
        payload, self.open = self.open, None
        if payload is None:
            return None
        if accepted < self.number:
            return self.memory.lost(decode(payload), self.step)
        self.counted = self.number
        if self.memory.method.memory.commits:
            self.memory.commit(decode(payload).split(self.tail)[0], self.step)
        return None

    def send(
        self, local: LocalUpdate, moment: Moment, limits: Limits = NO_LIMITS, positions: PositionCoding = "auto"
    ) -> bytes:
        """The next upload; the one before must be settled."""
        assert self.open is None, "an upload is open"
        self.open, self.report = make_payload(local, self.memory, moment, limits, positions)
        self.step, self.tail = moment.step, 0 if moment.layout is None else moment.layout.tail
        self.number += 1
        return self.open

    def send_again(self, local: LocalUpdate) -> bytes:
        """The open upload once more, for a server that can't tell what it has; the new update waits its turn."""
        assert self.open is not None, "no upload is open"
        self.memory.add(local.delta, local.largest, self.tail)
        self.report = NO_REPORT
        return self.open

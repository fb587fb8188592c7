"""A client's part of a round (Algorithm 1, lines 6-14), and how it handles an upload that does not arrive."""

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
    """Facts that a client sends about its upload."""

    smallest: float | None = None
    """The smallest kept magnitude, before values are rounded. Sent only if the level needs it."""

    update_size: float | None = None
    residual_size: float | None = None
    """Root mean squares of the update and of the residual, from a sample. Sent in one of `SIZED` uploads."""

    capped: bool | None = None
    """Whether a limit cut the upload: the method wanted to send more."""


NO_REPORT = Report()
SIZED = 8
"""One in this number of uploads tells sizes, chosen at random by its key: they cost time."""


class Upload(NamedTuple):
    """One client's message at the server: bytes, and the client's training loss."""

    client: int
    payload: bytes
    loss: float
    round: int = 0
    """The round of the upload."""

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
    """The report about `update`: what the method's level needs, and in some uploads the sizes."""
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
    """The smallest magnitude in the compressed part of `update`, before rounding; None if that part is empty."""
    head = update.dim - (0 if moment.layout is None else moment.layout.tail)
    indices = update.indices[: np.searchsorted(update.indices, head)]
    rest = np.float32(0) if residual is None else residual[indices]  # the rounding errors
    return float(np.abs(update.values[: len(indices)] + rest).min()) if len(indices) else None


def start_after_loss(model: Vector, lost: SparseUpdate) -> Vector:
    """The model from which a client trains if its last upload did not count: `model` as if it had counted.

    The client sends the lost update again with its next upload. If it started from `model`, it would compute most of
    the lost update a second time, and the model would take the same step twice.
    """
    start = model.copy()
    subtract(start, [lost], [1.0])
    return start


@dataclass
class Outbox:
    """A client's memory and its open upload, for transports that can lose uploads.

    Uploads are numbered. An upload is open until the server tells whether it counted. All that the client computed is
    in the server's model, in the memory, or in the open upload.
    """

    memory: ClientMemory
    number: int = 0
    """The number of the last upload; the first is 1."""

    open: bytes | None = None
    """The last upload, while it is not known whether it counted."""

    report: Report = NO_REPORT
    """The report about the last upload, for the first time that it is sent."""

    step: float = 1.0
    """`Moment.step` of the round in which the open upload was made."""

    made: int = 0
    """The number of that round, if rounds have numbers."""

    tail: int = 0
    """How many elements at the end of the upload are statistics, which are sent whole."""

    counted: int = 0
    """The number of the last upload that the server said it had counted."""

    def is_ahead(self, accepted: int) -> bool:
        """Whether the server went back to an older state, without an upload that has moved the client's shift."""
        return isinstance(self.memory.method.memory, Shifts) and accepted < self.counted

    def contradicts(self, accepted: int, checksum: int) -> bool:
        """Whether the server accepted uploads that this outbox never sent: the outbox is an old copy, or is copied."""
        other = self.open is not None and accepted == self.number and checksum != zlib.crc32(self.open)
        return accepted > self.number or other

    def settle(self, accepted: int) -> SparseUpdate | None:
        """Settles the open upload. If the server's last accepted upload is an earlier one, it returns to the memory.

        accepted   the number of the last upload that the server accepted

        Returns the lost update, or None.
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
        """Makes the next upload. The previous one must be settled."""
        assert self.open is None, "an upload is open"
        self.open, self.report = make_payload(local, self.memory, moment, limits, positions)
        self.step, self.tail = moment.step, 0 if moment.layout is None else moment.layout.tail
        self.number += 1
        return self.open

    def send_again(self, local: LocalUpdate) -> bytes:
        """The open upload again, for a server that can't tell whether it has it. `local` goes to the memory."""
        assert self.open is not None, "no upload is open"
        self.memory.add(local.delta, local.largest, self.tail)
        self.report = NO_REPORT
        return self.open

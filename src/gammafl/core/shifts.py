"""Shifts: both sides keep what a client sends in every round, and the client sends only the difference.

With non-IID data, a client's updates are similar in every round. Client i and the server share a shift h_i, which
starts at zero and follows what was sent. With s the sum of a round's stepsizes / that of the first round
(`Moment.step`):

    client   e ← e + Δ − s·h_i;  m = C(e);  e ← e − m
    both     h_i ← h_i + η·m, when m counted

`Mirror` is the server's half. With "each", it knows h_i of each client, so that Δ̂_i = m + s·h_i is a normal update.
That needs at most n·d floats. With "sum", it knows only their weighted mean H, and each round adds the step s·H to the
messages. That needs d floats and has less noise, but works only with servers that average.

`ErrorFeedback` is the case h = 0. EF21 is the case without e, where h_i follows at once: h_i ← h_i + m/s.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from gammafl.core import aggregate, kernels
from gammafl.core.arrays import Vector
from gammafl.core.errors import require
from gammafl.core.inputs import is_number
from gammafl.core.memory import FLOAT32_MAX, RESIDUAL, Memory, Residual, as_vector
from gammafl.core.moment import Moment
from gammafl.core.sparse import SparseUpdate
from gammafl.core.wire import decode, encode

if TYPE_CHECKING:
    from gammafl.core.method import Method

SHIFT = "shift"
OTHERS = "its shifts are not those of the clients that took part"
Half = Literal["each", "sum"]
"""What the server keeps: the shift of each client, or the weighted mean of all shifts."""


class Counted(NamedTuple):
    """An upload that counts."""

    sender: str
    update: SparseUpdate
    weight: float
    """Its weight in the round's step of the model."""

    step: float
    """`Moment.step` of the round in which it was made."""

    share: float
    """The weight of its sender among all senders, in any unit."""


@dataclass(frozen=True)
class Shifts(Memory):
    """Error feedback with shifts (docs/shifts.md).

    rate          η: how fast a shift follows what is sent; it needs about 1/rate messages
    server_half   "each": the server keeps each client's shift; "sum": only their mean

    >>> import gammafl as gf
    >>> gf.Method(gf.TopK(1), Shifts(rate=0.1)).memory
    Shifts(rate=0.1, server_half='sum')
    """

    rate: float = 0.03
    server_half: Half = "sum"

    commits = True
    vectors = (RESIDUAL, SHIFT)
    follows_step = False
    """Whether η grows as the stepsize falls."""

    def __post_init__(self) -> None:
        fits = is_number(self.rate) and 0 <= self.rate <= 1
        require(fits, f"the rate of shifts must be a number from 0 to 1, got {self.rate!r}")
        known = get_args(Half)
        require(self.server_half in known, f"server must be one of {', '.join(known)}, got {self.server_half!r}")

    def client(self, method: "Method", dim: int, state: Mapping[str, Vector] | None = None) -> "Shifted":
        return Shifted(method, dim, state)

    def server(self, dim: int, tail: int = 0) -> "Mirror":
        return MirrorOfEach(self, dim, tail) if self.server_half == "each" else MirrorOfSum(self, dim, tail)

    def follow(self, shift: Vector, update: SparseUpdate, step: float) -> None:
        """h ← h + η·m, with the same operations on both sides. With step 0, shifts are not in use yet."""
        if step == 0:
            return
        _add(shift, update, self.rate_at(step))

    def rate_at(self, step: float) -> float:
        """η in a round with this step."""
        return self.rate / step if self.follows_step else self.rate


@dataclass(frozen=True)
class EF21(Shifts):
    """EF21: the client sends the difference of its update to an estimate that both sides know, and drops the rest.

    rate          1: the estimate follows at once; a smaller one follows more slowly
    server_half   "sum": the server keeps the mean of the estimates, which is its step (EF21-PP); "each": it keeps each
                  client's estimate

    There is no residual: what a message lacks is still missing in the estimate, so that the next message has it.

    >>> EF21()
    EF21(rate=1.0, server_half='sum')
    """

    rate: float = 1.0
    follows_step = True

    def client(self, method: "Method", dim: int, state: Mapping[str, Vector] | None = None) -> "Estimated":
        return Estimated(method, dim, state)

    def server(self, dim: int, tail: int = 0) -> "Mirror":
        return MirrorOfEach(self, dim, tail) if self.server_half == "each" else MeanEstimate(self, dim, tail)


def _places(update: SparseUpdate) -> Any:
    return slice(None) if update.entire else update.indices


def _add(shift: Vector, update: SparseUpdate, factor: float) -> None:
    """shift ← shift + factor·update. No element exceeds the largest element of a model, for any update."""
    places, most = _places(update), np.float32(aggregate.LARGEST_MODEL)
    with np.errstate(over="ignore"):
        finite = np.float32(min(factor, FLOAT32_MAX))  # ∞·0 would be NaN
        shift[places] = np.clip(shift[places] + finite * update.values, -most, most)


# --- the client's half ------------------------------------------------------------------------------------


class Shifted(Residual):
    """Residual and shift of one client."""

    def __init__(self, method: "Method", dim: int, state: Mapping[str, Vector] | None = None) -> None:
        given = state or {}
        super().__init__(method, dim, given.get(RESIDUAL))
        self.shift = as_vector(given[SHIFT], dim, SHIFT) if SHIFT in given else np.zeros(dim, np.float32)
        require(
            kernels.largest_magnitude(self.shift) <= aggregate.LARGEST_MODEL,
            "the shift holds values that are too large",
        )
        self.remembers = True

    @property
    def memory(self) -> Shifts:
        assert isinstance(self.method.memory, Shifts)
        return self.method.memory

    def propose(self, delta: Any, moment: Moment, largest: float | None = None) -> SparseUpdate:
        update = super().propose(self._unknown(delta, moment), moment)
        self.remembers = True
        return update

    def _unknown(self, delta: Any, moment: Moment) -> Vector:
        """Δ − s·h: the part that the server does not know yet."""
        return as_vector(delta, self.dim, "delta") - np.float32(moment.step) * self.shift

    def commit(self, update: SparseUpdate, step: float) -> None:
        self.memory.follow(self.shift, update, step)

    def lost(self, update: SparseUpdate, step: float) -> SparseUpdate | None:
        """The server has neither m nor s·h of that round: both return, and the next training starts with both."""
        self.take_back(update)
        known = np.float32(step) * self.shift
        self.residual += known
        self._bound = kernels.largest_magnitude(self.residual)
        return SparseUpdate(self.dim, None, update.dense() + known)

    def state(self) -> dict[str, Vector]:
        return {RESIDUAL: self.residual, SHIFT: self.shift}


class Estimated(Shifted):
    """EF21's estimate of one client. The residual stays zero."""

    def propose(self, delta: Any, moment: Moment, largest: float | None = None) -> SparseUpdate:
        update = super().propose(delta, moment, largest)
        self._wanted = Residual.wanted(self, update)
        self.residual[:] = 0
        self._bound = 0.0
        return update

    def add(self, delta: Any, largest: float | None = None, tail: int = 0) -> None:
        """Does nothing: the next message has all that an update that is not sent would add."""

    def take_back(self, update: SparseUpdate) -> None:
        """Does nothing: the estimate has not changed, so that the next message has it."""

    def remove(self, update: SparseUpdate) -> None:
        """Does nothing: the estimate changes in `commit`."""

    def lost(self, update: SparseUpdate, step: float) -> None:
        """Does nothing: the estimate has not changed on either side."""

    def wanted(self, update: SparseUpdate) -> Vector:
        return self._wanted


# --- the server's half ------------------------------------------------------------------------------------


class Mirror(ABC):
    """What the server knows about its clients' shifts. Only uploads that count change it.

    Statistics, the last `tail` elements of a model, have no shifts. Otherwise a mean that includes absent clients could
    make a variance negative.
    """

    def __init__(self, memory: Shifts, dim: int, tail: int = 0) -> None:
        self.memory, self.dim, self.tail = memory, dim, tail
        self.shares: dict[str, float] = {}
        """Sender → its share at the time of its first counted upload."""

    @abstractmethod
    def step(self, model: Vector, counted: Sequence[Counted], arrived: float, step: float) -> None:
        """model ← model − the step of a round's uploads. The shifts do not change.

        arrived   the share of the round's clients whose uploads count
        step      `Moment.step` of the round
        """

    @abstractmethod
    def commit(self, counted: Sequence[Counted]) -> None:
        """Moves the shifts, after these uploads are in the model."""

    @abstractmethod
    def vectors(self) -> dict[str, NDArray[Any]]:
        """The arrays for a checkpoint, in addition to `shares`: vectors as long as the model, or bytes of messages."""

    @abstractmethod
    def restore(self, vectors: Mapping[str, NDArray[Any]], shares: Mapping[str, float]) -> None:
        """Sets the state from a checkpoint; a `ValueError` if it is malformed."""

    @staticmethod
    def _checked(vector: NDArray[Any], size: int) -> Vector:
        """A copy, if the vector has `size` elements and none is too large for a shift."""
        copy = np.array(vector, np.float32)
        if copy.shape != (size,):
            raise ValueError(OTHERS)
        if not kernels.largest_magnitude(copy) <= aggregate.LARGEST_MODEL:
            raise ValueError("its shifts hold values that are not finite, or too large")
        return copy

    @staticmethod
    def _checked_shares(shares: Mapping[str, float]) -> dict[str, float]:
        if wrong := [share for share in shares.values() if not (is_number(share) and 0 <= share < math.inf)]:
            raise ValueError(f"a share must be a finite number of at least 0, got {wrong[0]!r:.80}")
        return dict(shares)


class MirrorOfEach(Mirror):
    """h_i of every sender. It is stored by its entries while they are few, so that a sender needs little memory."""

    def __init__(self, memory: Shifts, dim: int, tail: int = 0) -> None:
        super().__init__(memory, dim, tail)
        self._shifts: dict[str, SparseUpdate] = {}

    def shift_of(self, sender: str) -> Vector:
        """h_i."""
        return self._shifts[sender].dense()

    def update_of(self, counted: Counted) -> SparseUpdate:
        """Δ̂ = m + s·h of one upload, for servers that need each update."""
        shift = self._shifts.get(counted.sender)
        if shift is None:
            return counted.update
        known = shift.with_values(np.float32(counted.step) * shift.values)
        return _changed(known, counted.update, lambda vector, update: _add(vector, update, 1.0))

    def step(self, model: Vector, counted: Sequence[Counted], arrived: float, step: float) -> None:
        for one in counted:  # one dense update at a time
            aggregate.subtract(model, [self.update_of(one)], [one.weight])

    def commit(self, counted: Sequence[Counted]) -> None:
        for one in counted:
            self.shares.setdefault(one.sender, one.share)
            shift = self._shifts.setdefault(one.sender, SparseUpdate(self.dim, [], []))
            if one.step:
                follow = partial(self.memory.follow, step=one.step)
                self._shifts[one.sender] = _changed(shift, one.update.split(self.tail)[0], follow)

    def vectors(self) -> dict[str, NDArray[Any]]:
        """Each shift as a vector, or as the bytes of a message if it has few entries."""
        return {
            sender: shift.values if shift.entire else np.frombuffer(encode(shift), np.uint8)
            for sender, shift in self._shifts.items()
        }

    def restore(self, vectors: Mapping[str, NDArray[Any]], shares: Mapping[str, float]) -> None:
        if set(vectors) != set(shares):
            raise ValueError(OTHERS)
        self._shifts = {name: self._stored(np.asarray(vector)) for name, vector in vectors.items()}
        self.shares = self._checked_shares(shares)

    def _stored(self, vector: NDArray[Any]) -> SparseUpdate:
        if vector.dtype != np.uint8:
            return SparseUpdate(self.dim, None, self._checked(vector, self.dim))
        update = decode(vector.tobytes(), self.dim)
        return SparseUpdate(self.dim, update.indices, self._checked(update.values, len(update)))


def _changed(shift: SparseUpdate, update: SparseUpdate, change: Callable[[Vector, SparseUpdate], None]) -> SparseUpdate:
    """`shift` after `change` at the positions of `update`; as a whole vector if that takes less memory.

    The result is the same, bit for bit, as if `change` worked on the whole vector: other elements do not change.
    """
    if not (shift.entire or update.entire):
        places = np.union1d(shift.indices, update.indices)
        if 2 * places.size < shift.dim:  # a position takes as much memory as a value
            values = np.zeros(places.size, np.float32)
            values[np.searchsorted(places, shift.indices)] = shift.values
            change(values, SparseUpdate(places.size, np.searchsorted(places, update.indices), update.values))
            return SparseUpdate(shift.dim, places, values)
    vector = shift.values if shift.entire else shift.dense()
    change(vector, update)
    return SparseUpdate(shift.dim, None, vector)


class MirrorOfSum(Mirror):
    """H = Σ a_i·h_i / Σ a_i over all senders that ever counted; a_i are their shares."""

    def __init__(self, memory: Shifts, dim: int, tail: int = 0) -> None:
        super().__init__(memory, dim, tail)
        self._total = np.zeros(dim, np.float32)
        """Σ a_i·h_i."""

    @property
    def mean(self) -> Vector:
        """H."""
        total = sum(self.shares.values())
        with np.errstate(over="ignore"):  # for shares near 0; too large values are clamped with the model
            return self._total / np.float32(total) if total else self._total

    def step(self, model: Vector, counted: Sequence[Counted], arrived: float, step: float) -> None:
        if counted:
            aggregate.subtract(model, [one.update for one in counted], [one.weight for one in counted])
            kernels.subtract_scaled(model, self.mean, np.float32(arrived * step))

    def commit(self, counted: Sequence[Counted]) -> None:
        for one in counted:
            share = self.shares.setdefault(one.sender, one.share)
            if one.step:
                _add(self._total, one.update.split(self.tail)[0], share * self.memory.rate_at(one.step))

    def vectors(self) -> dict[str, NDArray[Any]]:
        return {SHIFT: self._total}

    def restore(self, vectors: Mapping[str, NDArray[Any]], shares: Mapping[str, float]) -> None:
        if set(vectors) != {SHIFT}:
            raise ValueError(OTHERS)
        self._total, self.shares = self._checked(vectors[SHIFT], self.dim), self._checked_shares(shares)


class MeanEstimate(MirrorOfSum):
    """EF21-PP: the step is the mean of all estimates, also of clients that were not picked.

    Statistics, and uploads of rounds with step 0, are in no estimate: they count directly.
    """

    def step(self, model: Vector, counted: Sequence[Counted], arrived: float, step: float) -> None:
        if counted:
            apart = [one.update.split(self.tail)[1] if one.step else one.update for one in counted]
            aggregate.subtract(model, apart, [one.weight for one in counted])
            after = MeanEstimate(self.memory, self.dim, self.tail)
            after._total, after.shares = self._total.copy(), dict(self.shares)
            after.commit(counted)
            kernels.subtract_scaled(model, after.mean, np.float32(step))

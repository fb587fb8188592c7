"""The hard cap of an upload: no message is longer. Entries that do not fit return to the memory.

If the encoded message is too long, the largest entries that fit are sent instead. Their number is guessed from the
measured length. If the guess was too high, an upper bound of the length decides (`core/lengths.py`), which always fits.
If it was too low, a second guess may do better. So an upload is encoded at most three times. Values are rounded again
for the entries that are sent.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from gammafl.config.budget import Budget, Budgets
from gammafl.core import largest
from gammafl.core.errors import InputError, require
from gammafl.core.layout import Layout
from gammafl.core.lengths import MessageForm
from gammafl.core.memory import ClientMemory
from gammafl.core.method import Method
from gammafl.core.moment import Moment
from gammafl.core.shifts import Shifts
from gammafl.core.sparse import SparseUpdate
from gammafl.core.wire import PositionCoding, encode
from gammafl.federated.limits import Limits

MARGIN, SMALL_MARGIN = 1.03, 1.002
"""How much more an entry may cost than in the message before, as a factor: for the first guess, and for the second."""

FULL = 0.99
"""A message that fills at least this part of its cap is not encoded again."""


class Fitted(NamedTuple):
    """An upload within its limits."""

    payload: bytes
    update: SparseUpdate
    capped: bool
    """Whether entries were left out because they did not fit."""


def fit(
    memory: ClientMemory, update: SparseUpdate, moment: Moment, limits: Limits, positions: PositionCoding = "auto"
) -> Fitted:
    """`update`, which `memory` just proposed, cut to `limits`. Entries that are not sent return to the memory.

    Tensors that are sent whole are never cut: if they do not fit, the message is longer than `limits.payload_bytes`.
    """
    sent = _limited(memory, update, moment, limits)
    payload = encode(sent, positions)
    capped = limits.payload_bytes is not None and len(payload) > limits.payload_bytes
    if capped:
        payload, sent = _cut(memory, update, len(payload), moment, limits, positions)
    if sent is not update:
        memory.take_back(update)
        memory.remove(sent)
    return Fitted(payload, sent, capped)


def _limited(memory: ClientMemory, update: SparseUpdate, moment: Moment, limits: Limits) -> SparseUpdate:
    """`update` within the limits of entries and norm. Coded values are rounded again: a code depends on all entries."""
    if limits.entries is None or len(update) <= limits.entries or not _is_coded(update):
        return limits.fit(update)
    exact = SparseUpdate(update.dim, update.indices, memory.wanted(update))
    few = _largest(exact, len(update) - update.whole, max(0, limits.entries - update.whole), moment.key)
    return limits.fit(memory.method.rounded(few, moment))


def _is_coded(update: SparseUpdate) -> bool:
    return update.code is not None and update.code.values is not None


def _cut(
    memory: ClientMemory, update: SparseUpdate, length: int, moment: Moment, limits: Limits, positions: PositionCoding
) -> tuple[bytes, SparseUpdate]:
    """The largest entries that fit, by their magnitudes before rounding. The message of `update` has `length` bytes."""
    layout, most = moment.layout or Layout.flat(update.dim), limits.payload_bytes or 0
    form = MessageForm.of(memory.method, layout, positions, scaled=limits.scales)
    exact = SparseUpdate(update.dim, update.indices, memory.wanted(update))
    head = room = len(exact) - layout.tail
    if limits.entries is not None and _is_coded(update):
        room = max(0, min(head, limits.entries - layout.tail))

    def guess(length: int, count: int, margin: float) -> int:
        """How many entries fit, if the ratio of a length to its bound stays as it is for `count` entries."""
        return min(room, form.most_entries(most / min(1.0, margin * length / form.most_bytes(count))))

    def message(count: int) -> tuple[bytes, SparseUpdate]:
        sent = limits.fit(memory.method.rounded(_largest(exact, head, count, moment.key), moment))
        return encode(sent, positions), sent

    cheap = len(update) == update.dim or (update.code is not None and update.code.drawn is not None)
    bound = form.most_bytes(head) if cheap else 0  # positions cost bytes, unless all are sent or a key draws them
    count = guess(max(length, bound), head, MARGIN)
    first = message(count)
    if len(first[0]) > most:
        return message(min(room, form.most_entries(most)))
    better = guess(len(first[0]), count, SMALL_MARGIN)
    if len(first[0]) >= FULL * most or better <= count:
        return first
    second = message(better)
    return second if len(second[0]) <= most else first


def _largest(exact: SparseUpdate, head: int, count: int, key: int) -> SparseUpdate:
    """The `count` largest of the first `head` entries, and all entries after them. `key` chooses among equal ones."""
    chosen, _ = largest.take_largest(exact.values[:head].copy(), count, key)
    kept = np.concatenate([chosen, np.arange(head, len(exact), dtype=np.uint32)])
    return SparseUpdate(exact.dim, exact.indices[kept], exact.values[kept])


# --- a rate -----------------------------------------------------------------------------------------------


class Pace(NamedTuple):
    """How a client with a rate limit has used its link.

    If an upload had to be longer than the rate allows, the next ones are shorter.

    >>> pace = Pace(at=100.0)
    >>> pace.room(2.0, now=130.0), pace.after(2.0, now=130.0, sent=50), pace.after(2.0, now=130.0, sent=90)
    (60, Pace(at=130.0, owed=0.0), Pace(at=130.0, owed=30.0))
    """

    at: float
    """When the last upload was made, in seconds of any clock. Before the first: when the model arrived."""

    owed: float = 0.0
    """By how many bytes the last upload was too long."""

    def room(self, rate: float, now: float) -> int:
        """Bytes that the next upload may have. If the clock was set back, the time counts from now on."""
        return int(max(0.0, rate * max(0.0, now - self.at) - self.owed))

    def after(self, rate: float, now: float, sent: int) -> "Pace":
        """The pace after an upload of `sent` bytes."""
        return Pace(now, max(0.0, self.owed + sent - rate * max(0.0, now - self.at)))


def limits_of(budget: Budget, limits: Limits, pace: Pace | None = None, now: float = 0.0) -> Limits:
    """`limits` with the caps of a client's budget: its bytes per upload, and what its rate allows at the time `now`."""
    caps = [limits.payload_bytes, budget.upload]
    if budget.rate is not None and pace is not None:
        caps.append(max(1, pace.room(budget.rate, now)))
    given = [cap for cap in caps if cap is not None]
    return replace(limits, payload_bytes=min(given)) if given else limits


# --- what is possible -------------------------------------------------------------------------------------


def require_possible(method: Method, layout: Layout, limits: Limits, positions: PositionCoding = "auto") -> None:
    """Refuses a cap in which one entry and the tensors that are sent whole do not fit."""
    most = limits.payload_bytes
    if most is None:
        return
    form = MessageForm.of(method, layout, positions, scaled=limits.scales)
    needed = form.most_bytes(min(1, layout.dim - layout.tail))
    if needed > most:
        whole = f", since {layout.tail} values are sent whole (running statistics)" if layout.tail else ""
        cure = " or keep them at the clients" if layout.tail else ""
        raise InputError(f"no upload fits into {most} bytes: one entry takes up to {needed}{whole}; allow more{cure}")


def require_steerable(method: Method, budget: Budget) -> None:
    """Refuses a run's budget for a method that can't be told how much to send."""
    require(
        budget.run is None or not isinstance(method.memory, Shifts),
        f"a run's budget would spend again what the shifts of {method.name} save; give each upload a budget instead"
        " (64 kB/upload)",
    )
    able = budget.run is None or method.compressor.follows_keep
    name = type(method.compressor).__name__
    require(
        able,
        f"a budget of {budget} needs a method that can be told how much to keep, and {method.name} can't: use"
        " gamma-fedht, top-k or similar, or give each upload a budget (64 kB/upload). In a compressor of your own,"
        f" keep the fraction moment.keep if it is set, and write follows_keep = True in {name}",
    )


def own_budget(value: Any) -> Budget:
    """The budget that a client sets for itself: a cap, a rate, or both."""
    budget = Budget.of(value)
    alone = budget.run is None and budget.round_seconds is None
    require(alone, f"a client's own budget is per upload (64 kB/upload) or per second (2 kB/s), got {budget}")
    return budget


def require_clock(budgets: Budgets) -> None:
    """Refuses a rate in a simulated run if it does not say how long a round takes."""
    for client in (None, *budgets.own):
        budget = budgets.all if client is None else budgets.of_client(client)
        clear = budget.rate is None or budget.round_seconds is not None
        require(clear, f'a simulated run with a rate needs the time of a round: write "{budget}, 30 s/round"')

"""A bound on the norm of uploads that the server learns from the run: the median of what clients send, times a factor.

So nobody has to know beforehand how large updates are (`Limits.learnt_norm`). Rules that make it hard to fool:

- Only uploads that counted, of rounds that are closed, are looked at. None of them was beyond the bound of its round:
  the bound grows by no more than the factor in a round.
- Each address has one voice, the norm of its last upload, however often it sends. Fewer than half of the clients so
  never lift the bound above the factor times what another client sends.
- Offers name the bound, and a client keeps within it: the rest of its update waits in its memory. An honest client is
  not refused, and as long as most of them have more to send than they may, the bound grows.

Before the bound is known (the warm-up) a round is its own measure: what is far beyond the median of the round does not
count, and returns to its client.
"""

from collections.abc import Mapping
from dataclasses import replace
from statistics import median
from typing import Annotated, Any

from pydantic import Field

from gammafl.core.errors import InputError
from gammafl.core.sparse import SparseUpdate
from gammafl.federated.limits import SMALLEST_NORM, Limits, norm_of
from gammafl.federated.receipts import Address
from gammafl.files.reading import Count, Facts, checked

WARM_UP = 5
"""Rounds with uploads before there is a bound."""

VOICES = 3
"""Addresses that must be known for it: the median of two is half of one's own."""

ROUNDS, ENOUGH = 100, 100
"""Norms of so many rounds are remembered; fewer, if they are of so many addresses. Always of whole rounds: who is last
in a round has no advantage."""

WILD = 2.0
"""In the warm-up an upload may be so many times larger than later: who is refused by mistake only waits."""

Size = Annotated[float, Field(ge=0)]


class Voice(Facts):
    """The last upload of an address that was not empty: its round and its norm."""

    address: int | str
    round: Count
    norm: Size


class NormsState(Facts):
    """What is remembered, as it is stored."""

    rounds: Count = 0
    """How many are closed."""

    counted: Count = 0
    """Of them, those with uploads."""

    voices: list[Voice] = Field(default_factory=list)


class LearntNorm:
    """The bound of the open round, where `limits` ask for one.

    >>> norms = LearntNorm(Limits(learnt_norm=4.0))
    >>> for _ in range(WARM_UP):
    ...     assert norms.bound is None
    ...     norms.observe({name: SparseUpdate(3, [1], [size]) for name, size in zip("abcd", [1, 1.5, 2, 1e9])})
    >>> norms.bound, norms.within(Limits(entries=10)).norm
    (7.0, 7.0)
    """

    def __init__(self, limits: Limits) -> None:
        self._factor = limits.learnt_norm
        self._rounds, self._counted = 0, 0
        self._last: dict[Address, tuple[int, float]] = {}

    @property
    def bound(self) -> float | None:
        """What the norm of an upload may be in the open round; None where nothing is known, or none is asked for."""
        if self._factor is None or self._counted < WARM_UP or len(self._last) < VOICES:
            return None
        return max(SMALLEST_NORM, self._factor * median(norm for _, norm in self._last.values()))

    def within(self, limits: Limits) -> Limits:
        """`limits` of the open round."""
        bound = self.bound
        if bound is None:
            return limits
        return replace(limits, norm=bound if limits.norm is None else min(bound, limits.norm))

    def outliers(self, uploads: Mapping[Address, SparseUpdate]) -> dict[Address, str]:
        """Which uploads of a round must not count, and why. After the warm-up none: clients know the bound."""
        if self._factor is None or self.bound is not None:
            return {}
        norms = _norms(uploads)
        sent = list(norms.values())
        if len(sent) < VOICES:
            return {}
        most = max(SMALLEST_NORM, WILD * self._factor * median(sent))
        return {
            address: f"an update of norm {norm:.3g} where the median of the round is {median(sent):.3g}"
            for address, norm in norms.items()
            if norm > most
        }

    def observe(self, uploads: Mapping[Address, SparseUpdate]) -> None:
        """A round is closed, and these uploads counted."""
        if self._factor is None:
            return
        self._rounds += 1
        self._counted += bool(uploads)
        self.observe_more(uploads)
        latest = sorted((number for number, _ in self._last.values()), reverse=True)
        oldest = max(self._rounds - ROUNDS + 1, latest[ENOUGH - 1] if len(latest) >= ENOUGH else 0)
        self._last = {address: one for address, one in self._last.items() if one[0] >= oldest}

    def observe_more(self, uploads: Mapping[Address, SparseUpdate]) -> None:
        """These uploads of the round that was closed last counted too."""
        if self._factor is not None:
            self._last |= {address: (self._rounds, norm) for address, norm in _norms(uploads).items()}

    def state(self) -> dict[str, Any] | None:
        """What must outlive the process, as plain values; None where no bound is asked for."""
        if self._factor is None:
            return None
        voices = [{"address": who, "round": number, "norm": norm} for who, (number, norm) in self._last.items()]
        return {"rounds": self._rounds, "counted": self._counted, "voices": voices}

    def restore(self, saved: Mapping[str, Any] | None) -> None:
        """The bound that `state` was taken of."""
        if (saved is None) == (self._factor is not None):
            raise InputError("the stored norms are of other limits")
        if saved is None:
            return
        try:
            state = checked(NormsState, dict(saved))
        except ValueError as error:
            raise InputError(f"the stored norms can't be used ({error})") from None
        self._rounds, self._counted = state.rounds, state.counted
        self._last = {voice.address: (voice.round, voice.norm) for voice in state.voices}


def _norms(uploads: Mapping[Address, SparseUpdate]) -> dict[Address, float]:
    """Of those that say anything of the size of updates: not of empty ones."""
    norms = {address: norm_of(update) for address, update in uploads.items()}
    return {address: norm for address, norm in norms.items() if norm > 0}

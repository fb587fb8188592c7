"""A bound on the norm of uploads that the server learns: the median norm of the clients' uploads, times a factor.

So the user need not know how large updates are (`Limits.learnt_norm`). These rules make the bound hard to manipulate:

- It uses only uploads that counted, in finished rounds. None of them exceeded the bound of its round: so the bound
  grows at most by the factor per round.
- Each address has one voice, the norm of its last upload, even if it sends often. So a minority of the clients can't
  lift the bound above the factor times another client's norm.
- Offers tell the bound, and a client keeps to it: the rest of its update stays in its memory. An honest client is not
  refused. While most clients have more to send than the bound allows, the bound grows.

During the warm-up, before the bound is known, an upload far above the median of its own round does not count, and
returns to its client.
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
"""The number of rounds with uploads before there is a bound."""

VOICES = 3
"""The least number of addresses for a bound. With two, each client would make half of the median itself."""

ROUNDS, ENOUGH = 100, 100
"""Norms of the last ROUNDS rounds are kept, or of fewer rounds if they have ENOUGH addresses. Only whole rounds are
dropped: the order inside a round gives no advantage."""

WILD = 2.0
"""In the warm-up, the bound is this many times larger. A client that is refused by mistake only has to wait."""

Size = Annotated[float, Field(ge=0)]


class Voice(Facts):
    """The round and the norm of an address's last upload that was not empty."""

    address: int | str
    round: Count
    norm: Size


class NormsState(Facts):
    """The state in a file."""

    rounds: Count = 0
    """How many rounds are finished."""

    counted: Count = 0
    """How many of them had uploads."""

    voices: list[Voice] = Field(default_factory=list)


class LearntNorm:
    """The bound of the open round, if `limits` ask for one.

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
        """The largest norm in the open round; None if it is not known yet, or if no bound is asked for."""
        if self._factor is None or self._counted < WARM_UP or len(self._last) < VOICES:
            return None
        return max(SMALLEST_NORM, self._factor * median(norm for _, norm in self._last.values()))

    def within(self, limits: Limits) -> Limits:
        """`limits` with the bound of the open round."""
        bound = self.bound
        if bound is None:
            return limits
        return replace(limits, norm=bound if limits.norm is None else min(bound, limits.norm))

    def outliers(self, uploads: Mapping[Address, SparseUpdate]) -> dict[Address, str]:
        """Uploads of a round that must not count, with reasons. None after the warm-up, when clients know the bound."""
        if self._factor is None or self.bound is not None:
            return {}
        norms = _norms(uploads)
        sent = list(norms.values())
        if len(sent) < VOICES:
            return {}
        most = max(SMALLEST_NORM, WILD * self._factor * median(sent))
        return {
            address: f"an update of norm {norm:.3g}, but the median of the round is {median(sent):.3g}"
            for address, norm in norms.items()
            if norm > most
        }

    def observe(self, uploads: Mapping[Address, SparseUpdate]) -> None:
        """Takes the uploads that counted in a round."""
        if self._factor is None:
            return
        self._rounds += 1
        self._counted += bool(uploads)
        self.observe_more(uploads)
        latest = sorted((number for number, _ in self._last.values()), reverse=True)
        oldest = max(self._rounds - ROUNDS + 1, latest[ENOUGH - 1] if len(latest) >= ENOUGH else 0)
        self._last = {address: one for address, one in self._last.items() if one[0] >= oldest}

    def observe_more(self, uploads: Mapping[Address, SparseUpdate]) -> None:
        """Takes further uploads that counted in the last finished round."""
        if self._factor is not None:
            self._last |= {address: (self._rounds, norm) for address, norm in _norms(uploads).items()}

    def state(self) -> dict[str, Any] | None:
        """The state to store, as plain values; None if no bound is asked for."""
        if self._factor is None:
            return None
        voices = [{"address": who, "round": number, "norm": norm} for who, (number, norm) in self._last.items()]
        return {"rounds": self._rounds, "counted": self._counted, "voices": voices}

    def restore(self, saved: Mapping[str, Any] | None) -> None:
        """Sets the state that `state` returned."""
        if (saved is None) == (self._factor is not None):
            raise InputError("the stored norms belong to other limits")
        if saved is None:
            return
        try:
            state = checked(NormsState, dict(saved))
        except ValueError as error:
            raise InputError(f"the stored norms can't be used ({error})") from None
        self._rounds, self._counted = state.rounds, state.counted
        self._last = {voice.address: (voice.round, voice.norm) for voice in state.voices}


def _norms(uploads: Mapping[Address, SparseUpdate]) -> dict[Address, float]:
    """Address → norm of its upload, without empty ones."""
    norms = {address: norm_of(update) for address, update in uploads.items()}
    return {address: norm for address, norm in norms.items() if norm > 0}

"""The facts about the run that a compressor gets when it is called."""

import math
from dataclasses import dataclass
from functools import cached_property

from gammafl.core.errors import InputError, require
from gammafl.core.layout import Layout
from gammafl.core.shares import Share
from gammafl.core.stepsizes import Stepsize, as_stepsize


@dataclass(frozen=True)
class Moment:
    """The facts about the run for a compressor. `Schedule.moment` makes one.

    t            the iteration at the end of the round (t+1 of Algorithm 1)
    gamma        γ_t
    first_gamma  γ_0
    last_gamma   γ_T
    iterations   T
    scale        the factor of a threshold, which a level has found (`core/levels.py`)
    layout       the tensors of the vector; None if not known
    key          64 random bits for this client and round: np.random.default_rng(moment.key)
    keep         the fraction of the entries to keep, instead of the compressor's own λ or k. None: its own
    step         the sum of the round's stepsizes, divided by that of the first round; 1 if they are not known, 0 while
                 shifts are not in use
    share        this client's share of the training data; None if not known, as over Flower

    >>> Moment(keep=0.1).gamma, Schedule(0.1, iterations=100).moment(5).t
    (1.0, 5)
    """

    t: int = 0
    gamma: float = 1.0
    first_gamma: float = 1.0
    last_gamma: float = 1.0
    iterations: int = 1
    scale: float = 1.0
    layout: Layout | None = None
    key: int = 0
    keep: float | None = None
    step: float = 1.0
    share: Share | None = None

    def keyed(self, key: int, share: Share | None = None) -> "Moment":
        """The same moment for another key and client. `dataclasses.replace` would be too slow for the simulator."""
        moment = object.__new__(Moment)
        moment.__dict__.update(self.__dict__, key=key, share=share)
        return moment

    @property
    def tensors(self) -> Layout:
        """The layout; an error if it is not known."""
        if self.layout is None:
            raise InputError("this needs to know the model's tensors: give Moment(layout=gf.Layout.of({name: shape}))")
        return self.layout


def key_of(*numbers: int, key: int = 0) -> int:
    """64 random bits from numbers such as seed, round and client (splitmix64).

    If the key of the first numbers is known, give it as `key` with the other numbers.

    >>> key_of(0, 1, 2) == key_of(2, key=key_of(0, 1)) != key_of(0, 2, 1)
    True
    """
    for number in numbers:
        key = (key ^ (number & WORD)) + 0x9E3779B97F4A7C15 & WORD
        key = (key ^ key >> 30) * 0xBF58476D1CE4E5B9 & WORD
        key = (key ^ key >> 27) * 0x94D049BB133111EB & WORD
        key ^= key >> 31
    return key


WORD = 2**64 - 1


@dataclass(frozen=True)
class Schedule:
    """γ_t for the iterations t = 0…T of a run.

    lr           the stepsize: a number if it is constant, or a function of t such as gf.InverseDecay(100, 1000)
    iterations   T

    >>> Schedule(0.1, iterations=100).moment(5).gamma
    0.1
    """

    lr: Stepsize | float
    iterations: int

    def __post_init__(self) -> None:
        as_stepsize(self.lr)
        whole = isinstance(self.iterations, int) and self.iterations >= 1
        require(whole, f"iterations must be a whole number of at least 1, got {self.iterations}")

    @cached_property
    def stepsize(self) -> Stepsize:
        """γ as a function of t."""
        return as_stepsize(self.lr)

    @cached_property
    def ends(self) -> tuple[float, float]:
        """γ_0 and γ_T."""
        return float(self.stepsize(0)), float(self.stepsize(self.iterations))

    def moment(
        self,
        t: int,
        scale: float = 1.0,
        layout: Layout | None = None,
        key: int = 0,
        keep: float | None = None,
        step: float = 1.0,
    ) -> Moment:
        """The moment at iteration t."""
        return Moment(t, float(self.stepsize(t)), *self.ends, self.iterations, scale, layout, key, keep, step)

    def step(self, round_number: int, local_steps: int) -> float:
        """`Moment.step` of a round; the first round is 0.

        >>> from gammafl.core.stepsizes import InverseDecay
        >>> Schedule(InverseDecay(1, 10), 100).step(10, local_steps=1)
        0.5
        """
        return self._sum(round_number, local_steps) / self._sum(0, local_steps)

    def _sum(self, round_number: int, local_steps: int) -> float:
        first = round_number * local_steps
        return math.fsum(float(self.stepsize(t)) for t in range(first, first + local_steps))

"""What a compressor is told of the run when it is called."""

import math
from dataclasses import dataclass
from functools import cached_property

from gammafl.core.errors import InputError, require
from gammafl.core.layout import Layout
from gammafl.core.shares import Share
from gammafl.core.stepsizes import Stepsize, as_stepsize


@dataclass(frozen=True)
class Moment:
    """All that a compressor may know of the run.

    t            the iteration that the round ends at (t+1 of Algorithm 1)
    gamma        γ_t; `first_gamma` is γ_0 and `last_gamma` is γ_T
    iterations   T
    scale        what a threshold is multiplied by: the number that a level has found (`core/levels.py`)
    layout       the tensors of the vector; None where nobody said
    key          64 random bits for this client and round: np.random.default_rng(moment.key)
    keep         the fraction of the entries that is to be kept, whatever the compressor's own λ or k; None: they decide
    step         the sum of the round's stepsizes, by that of the first round; 1 where nobody knows them, 0 as long as
                 shifts are not in use
    share        of the training data, this client's beside the others'; None where nobody knows, as over Flower
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
        """The same moment for another key and client; `dataclasses.replace` would count in a simulator's round."""
        moment = object.__new__(Moment)
        moment.__dict__.update(self.__dict__, key=key, share=share)
        return moment

    @property
    def tensors(self) -> Layout:
        """The layout, for those that can't do without one."""
        if self.layout is None:
            raise InputError("this needs to know the model's tensors: give Moment(layout=gf.Layout.of({name: shape}))")
        return self.layout


def key_of(*numbers: int, key: int = 0) -> int:
    """64 random bits that these numbers fix, such as seed, round and client (splitmix64).

    Where the key of the first numbers is known, `key`, the others are enough.

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
    """γ_t for the iterations t = 0…T of a run. A number is a constant stepsize.

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
        """`Moment.step` of a round, the first of which is 0.

        >>> from gammafl.core.stepsizes import InverseDecay
        >>> Schedule(InverseDecay(1, 10), 100).step(10, local_steps=1)
        0.5
        """
        return self._sum(round_number, local_steps) / self._sum(0, local_steps)

    def _sum(self, round_number: int, local_steps: int) -> float:
        first = round_number * local_steps
        return math.fsum(float(self.stepsize(t)) for t in range(first, first + local_steps))

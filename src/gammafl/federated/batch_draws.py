"""The random generators of many clients, and draws from all of them in one compiled call.

To make a `numpy.random.Generator` takes longer than to draw a client's batches from it. So this module computes what
numpy computes, for addresses of four words: `SeedSequence` hashes them into the state of a `PCG64`, whose outputs are
cut in two, and `Generator.integers` scales each half down by Lemire's method. Tests show that the numbers are the same.
"""

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from gammafl import seeds
from gammafl.core.jit import compiled

Integers = NDArray[np.int64]
Generator = np.random.Generator

WORD = 2**32
LOW = np.uint64(WORD - 1)
SHIFT = np.uint64(32)
HASH, STATE = (0x43B0D7E5, 0x931E8875), (0x8B51F9DD, 0x58F38DED)
"""First constant and multiplier of `SeedSequence`: HASH for the words that it reads, STATE for the state it returns."""
MIX = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
MULTIPLIER = np.uint64(2549297995355413924), np.uint64(4865540595714422341)
"""The multiplier of `PCG64`, a number of 128 bits: its high half and its low half."""


class Streams(Sequence[Generator]):
    """`seeds.generator(seed, role, round, client)` for each of `clients`: a new one at each access."""

    def __init__(self, seed: int, role: str, round_number: int, clients: Sequence[int]) -> None:
        self._address = seed, role, round_number
        self._clients = clients

    def __len__(self) -> int:
        return len(self._clients)

    @overload
    def __getitem__(self, number: int) -> Generator: ...

    @overload
    def __getitem__(self, number: slice) -> Sequence[Generator]: ...

    def __getitem__(self, number: int | slice) -> Generator | Sequence[Generator]:
        if isinstance(number, slice):
            return Streams(*self._address, self._clients[number])
        return seeds.generator(*self._address, self._clients[number])

    def integers(self, below: Sequence[int], size: int) -> Integers:
        """`size` numbers from each generator, one row per generator: from 0 to below its entry of `below`."""
        shared = seeds.address(*self._address)
        if max(*shared, *self._clients, *below) >= WORD:
            return _one_by_one(self, below, size)
        addresses = np.array([(*shared, client) for client in self._clients], np.uint32)
        drawn = np.empty((len(addresses), size), np.int64)
        _draw(addresses, np.array(below, np.uint32), drawn)
        return drawn

    def drawn(self, number: int, below: int, size: int) -> tuple[Integers, Generator]:
        """One row of `integers`, and the generator for further random numbers."""
        return _drawn(self[number], below, size)


def drawn(rngs: Sequence[Generator], number: int, below: int, size: int) -> tuple[Integers, Generator]:
    """Only row `number` of `integers`, and the generator for further random numbers."""
    return rngs.drawn(number, below, size) if isinstance(rngs, Streams) else _drawn(rngs[number], below, size)


def _drawn(rng: Generator, below: int, size: int) -> tuple[Integers, Generator]:
    return rng.integers(below, size=size), rng


def integers(rngs: Sequence[Generator], below: Sequence[int], size: int) -> Integers:
    """`rng.integers(below, size=size)` for each generator and its own `below`, one row per generator."""
    return rngs.integers(below, size) if isinstance(rngs, Streams) else _one_by_one(rngs, below, size)


def _one_by_one(rngs: Sequence[Generator], below: Sequence[int], size: int) -> Integers:
    return np.stack([rng.integers(most, size=size) for rng, most in zip(rngs, below, strict=True)])


@compiled
def _draw(addresses: Any, below: Any, drawn: Any) -> None:
    for i in range(addresses.shape[0]):
        state, increment = _pcg64(addresses[i])
        waiting, half = False, np.uint64(0)
        bound = np.uint64(below[i])
        rejected = (np.uint64(WORD) - bound) % bound  # numbers that would be drawn more often than others
        for j in range(drawn.shape[1] if bound > 1 else 0):
            while True:
                if waiting:
                    word = half
                else:
                    state = _next(state, increment)
                    output = _output(state)
                    word, half = output & LOW, output >> SHIFT
                waiting = not waiting
                scaled = word * bound
                if scaled & LOW >= rejected:
                    break
            drawn[i, j] = scaled >> SHIFT
        if bound == 1:
            drawn[i] = 0


@compiled
def _hashed(word: Any, constant: Any, multiplier: Any) -> Any:
    """(hash of a word, constant for the next word)."""
    following = np.uint32(constant * multiplier)
    word = np.uint32((word ^ constant) * following)
    return np.uint32(word ^ (word >> np.uint32(16))), following


@compiled
def _pcg64(address: Any) -> Any:
    """The state of a generator after its seeding, and its increment; each as two halves."""
    pool = np.empty(4, np.uint32)
    constant, multiplier = np.uint32(HASH[0]), np.uint32(HASH[1])
    for i in range(4):
        pool[i], constant = _hashed(address[i], constant, multiplier)
    for source in range(4):
        for target in range(4):
            if source != target:
                word, constant = _hashed(pool[source], constant, multiplier)
                mixed = np.uint32(MIX[0] * pool[target] - MIX[1] * word)
                pool[target] = mixed ^ (mixed >> np.uint32(16))
    given = np.empty(4, np.uint64)
    constant, multiplier = np.uint32(STATE[0]), np.uint32(STATE[1])
    for i in range(4):
        low, constant = _hashed(pool[2 * i % 4], constant, multiplier)
        high, constant = _hashed(pool[(2 * i + 1) % 4], constant, multiplier)
        given[i] = np.uint64(low) | np.uint64(high) << SHIFT
    increment = given[2] << np.uint64(1) | given[3] >> np.uint64(63), given[3] << np.uint64(1) | np.uint64(1)
    return _next(_sum(increment, (given[0], given[1])), increment), increment


@compiled
def _sum(a: Any, b: Any) -> Any:
    low = a[1] + b[1]
    return a[0] + b[0] + np.uint64(low < a[1]), low


@compiled
def _next(state: Any, increment: Any) -> Any:
    """state · MULTIPLIER + increment, of 128 bits each."""
    high, low = state
    a, b = low >> SHIFT, low & LOW
    c, d = MULTIPLIER[1] >> SHIFT, MULTIPLIER[1] & LOW
    middle = a * d + (b * d >> SHIFT)
    other = b * c + (middle & LOW)
    carried = a * c + (middle >> SHIFT) + (other >> SHIFT)
    return _sum((high * MULTIPLIER[1] + low * MULTIPLIER[0] + carried, low * MULTIPLIER[1]), increment)


@compiled
def _output(state: Any) -> Any:
    """The two halves of the state combined, and rotated by the state's highest bits."""
    mixed, rotation = state[0] ^ state[1], state[0] >> np.uint64(58)
    return mixed >> rotation | mixed << ((np.uint64(64) - rotation) & np.uint64(63))

"""(seed, role, round, client) → random generator: every draw of a run has an address of its own.

A generator is made where it is used and never kept, so there is no random state to save: a resumed run, a
parallel run and a run with one more random draw elsewhere all see the same numbers.
"""

import zlib

import numpy as np


def generator(seed: int, role: str, *path: int) -> np.random.Generator:
    """The generator of one role, such as `generator(seed, "batches", round, client)`."""
    numbers = address(seed, role, *path)
    words = np.array(numbers, np.uint32) if max(numbers) < 2**32 else numbers  # the same numbers, taken in faster
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))


def address(seed: int, role: str, *path: int) -> tuple[int, ...]:
    """The numbers that a generator is made from."""
    return seed, zlib.crc32(role.encode()), *path

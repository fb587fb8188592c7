"""(seed, role, round, client) → random generator: every draw of a run has an address of its own.

A generator is made where it is used and never kept, so there is no random state to save: a resumed run, a
parallel run and a run with one more random draw elsewhere all see the same numbers.
"""

import zlib

import numpy as np


def generator(seed: int, role: str, *path: int) -> np.random.Generator:
    """The generator of one role, such as `generator(seed, "batches", round, client)`."""
    address = (seed, role_number(role), *path)
    words = np.array(address, np.uint32) if max(address) < 2**32 else address  # the same numbers, taken in faster
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))


def role_number(role: str) -> int:
    """A role's word of an address."""
    return zlib.crc32(role.encode())

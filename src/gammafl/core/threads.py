"""How many threads may be used, and how work is shared out among them.

The pool is Python's own, for compiled code that releases the GIL: numba's threading layers abort on concurrent use
or break after a fork.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")

CORES = os.cpu_count() or 1
_count = CORES
_pool: tuple[int, ThreadPoolExecutor] | None = None


def count() -> int:
    """How many threads may be used at a time."""
    return _count


def set_count(threads: int) -> None:
    """Use at most so many threads (default: one a core)."""
    global _count
    _count = max(1, threads)


def share_out(work: Callable[[int, int], Result], size: int, at_least: int = 1, block: int = 1) -> list[Result]:
    """`work(start, stop)` for parts that cover 0…size, and the results in their order.

    There is a part a thread, but none smaller than `at_least`; parts begin at multiples of `block`. This thread does
    the first part itself.
    """
    global _pool
    parts = max(1, min(_count, size // at_least))
    if parts == 1:
        return [work(0, size)]
    if _pool is None or _pool[0] != os.getpid():  # a forked child has the object but not its threads
        _pool = (os.getpid(), ThreadPoolExecutor(CORES, "gammafl"))
    step = -(-size // parts // block) * block
    bounds = [(start, min(start + step, size)) for start in range(0, size, step)]
    others = [_pool[1].submit(work, *bound) for bound in bounds[1:]]
    return [work(*bounds[0]), *(other.result() for other in others)]

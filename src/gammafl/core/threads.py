"""The number of threads, and how work is divided among them.

The pool is Python's own, for compiled code that releases the GIL. numba's threading layers abort if two threads use
them, or break after a fork.
"""

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")

CORES = os.cpu_count() or 1
_count = CORES
_pool: tuple[int, ThreadPoolExecutor] | None = None


def count() -> int:
    """The number of threads that may be used at a time."""
    return _count


def set_count(threads: int) -> None:
    """Sets the most threads to use. By default there is one per core."""
    global _count
    _count = max(1, threads)


def share_out(work: Callable[[int, int], Result], size: int, at_least: int = 1, block: int = 1) -> list[Result]:
    """The results of `work(start, stop)` for parts that cover 0…size, in order.

    at_least   the smallest part. Otherwise there is one part per thread
    block      parts begin at multiples of it

    The calling thread does the first part itself.
    """
    parts = min(_count, size // at_least)
    if parts <= 1:
        return [work(0, size)]
    step = -(-size // parts // block) * block
    others = begin(work, step, size, parts - 1, block)
    return [work(0, min(step, size)), *(other.result() for other in others)]


def begin(
    work: Callable[[int, int], Result], start: int, stop: int, parts: int, block: int = 1
) -> list[Future[Result]]:
    """Starts `work` in other threads, for `parts` parts of start…stop."""
    global _pool
    if start >= stop:
        return []
    if _pool is None or _pool[0] != os.getpid():  # a forked child has the object but not its threads
        _pool = (os.getpid(), ThreadPoolExecutor(CORES, "gammafl"))
    step = -(-(stop - start) // parts // block) * block
    return [_pool[1].submit(work, first, min(first + step, stop)) for first in range(start, stop, step)]

"""How many threads may be used, and how work is shared out among them.

The pool is Python's own, for compiled code that releases the GIL: numba's threading layers abort on concurrent use
or break after a fork.
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
    parts = min(_count, size // at_least)
    if parts <= 1:
        return [work(0, size)]
    step = -(-size // parts // block) * block
    others = begin(work, step, size, parts - 1, block)
    return [work(0, min(step, size)), *(other.result() for other in others)]


def begin(
    work: Callable[[int, int], Result], start: int, stop: int, parts: int, block: int = 1
) -> list[Future[Result]]:
    """`work` for `parts` parts of start…stop, begun in other threads."""
    global _pool
    if start >= stop:
        return []
    if _pool is None or _pool[0] != os.getpid():  # a forked child has the object but not its threads
        _pool = (os.getpid(), ThreadPoolExecutor(CORES, "gammafl"))
    step = -(-(stop - start) // parts // block) * block
    return [_pool[1].submit(work, first, min(first + step, stop)) for first in range(start, stop, step)]

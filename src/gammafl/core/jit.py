"""Compilation of the loops."""

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as machine code that runs without the GIL and is kept on disk where there is a place to keep it."""
    try:
        return njit(nogil=True, cache=True)(function)
    except RuntimeError:  # neither the package's directory nor the user's cache can be written
        return njit(nogil=True)(function)

"""Compilation of the loops."""

from collections.abc import Callable
from typing import Any

from numba import njit

REORDERED = {"reassoc", "contract", "nsz", "arcp"}
"""Sums may be taken in another order; NaN and infinity keep their meaning."""


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as machine code that runs without the GIL and is kept on disk where there is a place to keep it."""
    return _compiled(function)


def compiled_reordering(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same, for sums whose order does not matter: it is the compiler's, which makes them as fast as products."""
    return _compiled(function, fastmath=REORDERED)


def _compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    try:
        return njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:  # neither the package's directory nor the user's cache can be written
        return njit(nogil=True, **options)(function)

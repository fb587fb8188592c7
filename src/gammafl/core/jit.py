"""Compilation of the loops."""

import hashlib
import inspect
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any, cast

from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from gammafl.core.kept_code import KeptCode, say_once

REORDERED = {"reassoc", "contract", "nsz", "arcp"}
"""The compiler may change the order of sums. NaN and infinity keep their meaning."""


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as machine code that runs without the GIL. It is stored on disk if there is a writable directory."""
    return _compiled(function)


def compiled_reordering(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `compiled`, but the compiler chooses the order of sums, which makes them as fast as products."""
    return _compiled(function, fastmath=REORDERED)


def compiled_with(*modules: ModuleType) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """As `compiled`, for a function with code of these modules. If their files change, it is compiled again."""
    digest = hashlib.sha256(b"".join(inspect.getsource(module).encode() for module in modules)).hexdigest()
    return lambda function: _compiled(function, parts=digest)


def part_of_compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A part of a `compiled_reordering` function. It is always compiled into its caller.

    Otherwise the compiler may or may not inline it, depending on the cache. Then the order of sums, and so the last
    digits, could change from one start to the next.
    """
    return njit(inline="always")(function)


def _compiled(function: Callable[..., Any], parts: str = "", **options: Any) -> Callable[..., Any]:
    dispatcher: Any = njit(nogil=True, **options)(function)
    if hasattr(dispatcher, "enable_caching"):  # with NUMBA_DISABLE_JIT, it is the plain function
        try:
            dispatcher._cache = KeptCode(function, parts)
        except RuntimeError:
            beside = f"{os.path.dirname(function.__code__.co_filename)}/__pycache__"
            say_once(
                f"compiled code can be kept neither in {beside} nor in the user's cache directory; set NUMBA_CACHE_DIR "
                "to a directory that can be written, or every start takes some seconds longer"
            )
    return dispatcher


def _trailing_zeros(context: Any, word: Any) -> Any:
    """How many of the lowest bits of a 64-bit word are zero. The word must not be zero.

    Processors have an instruction for it, but numba has no function for that instruction.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], cgutils.true_bit)

    return types.uint64(types.uint64), generate


trailing_zeros: Callable[[Any], Any] = cast(Any, intrinsic(_trailing_zeros))
"""`_trailing_zeros` of a word, for compiled code."""


def _leading_zeros(context: Any, word: Any) -> Any:
    """How many of the highest bits of a 64-bit word are zero. The word must not be zero."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], cgutils.true_bit)

    return types.uint64(types.uint64), generate


leading_zeros: Callable[[Any], Any] = cast(Any, intrinsic(_leading_zeros))
"""`_leading_zeros` of a word, for compiled code."""


def _bits_set(context: Any, word: Any) -> Any:
    """How many bits of a 64-bit word are set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


bits_set: Callable[[Any], Any] = cast(Any, intrinsic(_bits_set))
"""`_bits_set` of a word, for compiled code."""


def _fetch_and_add(context: Any, numbers: Any, amount: Any) -> Any:
    """Atomically adds `amount` to the first of an array's 64-bit numbers, and returns its previous value."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.atomic_rmw("add", array.data, arguments[1], "seq_cst")

    return types.int64(numbers, types.int64), generate


fetch_and_add: Callable[[Any, Any], Any] = cast(Any, intrinsic(_fetch_and_add))
"""`_fetch_and_add`, for compiled code. After a thread's call, it sees what others wrote before theirs."""

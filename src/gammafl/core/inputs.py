"""Reads arrays from callers, numpy's, torch's or lists, with a one-line error for all else."""

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gammafl.core.arrays import Vector
from gammafl.core.errors import InputError, require

NUMBERS = "fiub"
"""Kinds of numpy's types that are real numbers."""

STRIDED = "torch.strided"
"""How torch lays out a tensor that is not sparse."""


def is_number(value: Any) -> bool:
    """Whether `value` is a real number of Python's or numpy's. True and False are not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def array_of(value: Any, name: str, wanted: str) -> NDArray[Any]:
    """`value` as a numpy array that shares its memory, if possible. `wanted` describes the right type in the error."""
    if isinstance(value, np.ma.MaskedArray):  # numpy would drop the mask
        raise not_what_is_wanted(value, name, wanted)
    try:
        return np.asarray(value.detach() if hasattr(value, "detach") else value)
    except (TypeError, ValueError, RuntimeError):  # such as torch's errors for bfloat16, sparse tensors and devices
        raise not_what_is_wanted(value, name, wanted) from None


def floats_of(value: Any, name: str) -> Vector:
    """`value` as a contiguous float32 vector. It shares the memory if `value` already is one."""
    wanted = "a vector of numbers, such as float32"
    array = array_of(value, name, wanted)
    if array.ndim != 1 or array.dtype.kind not in NUMBERS:
        raise not_what_is_wanted(value, name, wanted)
    with np.errstate(over="ignore"):
        vector: Vector = np.asarray(array, np.float32, order="C")
    if array.dtype != np.float32:
        fits = bool((np.isfinite(vector) | ~np.isfinite(array)).all())
        require(fits, f"{name}: a number is too large for float32")
    return vector


def not_what_is_wanted(value: Any, name: str, wanted: str) -> InputError:
    return InputError(f"{name} must be {wanted}, got {_described(value)}")


def _described(value: Any) -> str:
    """'torch.float32 of shape (3, 4), torch.sparse_coo' for a tensor, 'list' for a list."""
    try:
        parts = [f"{value.dtype} of shape {tuple(value.shape)}"]
    except (AttributeError, TypeError, RuntimeError):  # RuntimeError: a nested tensor has no shape
        return "None" if value is None else type(value).__name__
    if isinstance(value, np.ma.MaskedArray):
        parts.append("with a mask")
    if (layout := str(getattr(value, "layout", STRIDED))) != STRIDED:
        parts.append(layout)
    elif not _is_contiguous(value):
        parts.append("not contiguous")
    if (device := str(getattr(value, "device", "cpu"))) != "cpu":
        parts.append(f"on {device}")
    return ", ".join(parts)


def _is_contiguous(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.flags.c_contiguous
    return not hasattr(value, "is_contiguous") or bool(value.is_contiguous())

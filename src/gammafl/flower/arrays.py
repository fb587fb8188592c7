"""Tensors in Flower's messages. numpy has no bfloat16: such a tensor is sent as the 16 bits of each element."""

import sys
from collections.abc import Callable, Mapping
from copy import copy
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.common.constant import SType
from numpy.typing import NDArray

from gammafl.core.errors import InputError

BFLOAT16 = "bfloat16"
HALF = ("float16", BFLOAT16)
RAW = "gammafl.raw"
"""Serialisation of a bfloat16 tensor: its elements in order, two bytes each, the low byte first."""


class Floats(NamedTuple):
    """The type of a tensor, and how Flower serialises it."""

    dtype: str
    stype: str


def array_record(state_dict: Mapping[str, Any]) -> ArrayRecord:
    """As `flwr.app.ArrayRecord(state_dict)`, and takes bfloat16 tensors too.

    state_dict   name → tensor, such as `module.state_dict()`

    Returns an ArrayRecord; `gammafl.flower.state_dict` reads it.

    >>> import torch
    >>> record = array_record({"weight": torch.ones(2, dtype=torch.bfloat16)})
    >>> record["weight"].dtype, state_dict(record)["weight"].dtype
    ('bfloat16', torch.bfloat16)
    """
    return ArrayRecord({name: _array(tensor) for name, tensor in state_dict.items()})


def state_dict(record: ArrayRecord) -> dict[str, Any]:
    """The tensors of `record`, for `module.load_state_dict`.

    record   an ArrayRecord, of Flower's own or of `gammafl.flower.array_record`

    Returns name → tensor, each of its own type; bfloat16 too.

    >>> import torch
    >>> tensors = state_dict(array_record({"bias": torch.zeros(3)}))
    >>> tensors["bias"]
    tensor([0., 0., 0.])
    """
    import torch

    tensors = {}
    for name, array in record.items():
        if array.dtype == BFLOAT16:
            tensors[name] = torch.from_numpy(_bits(array).view(np.int16)).view(torch.bfloat16)
        else:
            tensors[name] = torch.from_numpy(np.array(array.numpy()))
    return tensors


def _array(tensor: Any) -> Array:
    if str(tensor.dtype) != "torch.bfloat16":
        return Array(tensor if isinstance(tensor, np.ndarray) else tensor.detach().cpu().numpy())
    torch = sys.modules["torch"]
    bits = tensor.detach().cpu().contiguous().view(torch.int16).numpy()
    return Array(BFLOAT16, tuple(tensor.shape), RAW, bits.astype("<i2").tobytes())


def numpy_of(array: Array) -> NDArray[Any]:
    """The elements of `array`. A `ValueError` if its data do not have the type and the shape that it states."""
    if array.dtype == BFLOAT16:
        return _bits(array)
    if array.stype != SType.NUMPY:
        raise ValueError(f"a tensor serialised as {array.stype!r}, which can't be read")
    try:
        elements = array.numpy()
    except Exception as error:  # whatever numpy stumbles over in bytes that are no array
        raise ValueError(f"a tensor that can't be read ({type(error).__name__})") from None
    if (str(elements.dtype), elements.shape) != (array.dtype, tuple(array.shape)):
        raise ValueError(
            f"a tensor of {elements.dtype} {elements.shape} where {array.dtype} {array.shape} is announced"
        )
    return elements


def floats_in(array: Array) -> NDArray[Any]:
    """The elements of a tensor of floats; bfloat16 as float32, which holds it exactly."""
    try:
        elements = numpy_of(array)
    except ValueError as error:
        raise InputError(str(error)) from None
    if array.dtype != BFLOAT16:
        return elements
    return np.asarray(elements.astype(np.uint32) << np.uint32(16)).view(np.float32)


def in_float32(record: ArrayRecord) -> ArrayRecord:
    """`record` with its 16-bit tensors in float32, which strategies can calculate with."""
    if not any(array.dtype in HALF for array in record.values()):
        return record
    return ArrayRecord(
        {name: Array(floats_in(a).astype(np.float32)) if a.dtype in HALF else a for name, a in record.items()}
    )


def floats_out(values: NDArray[np.float32], kind: Floats) -> Array:
    """float32 elements as a tensor of the type `kind`, rounded to the nearest."""
    if kind.dtype != BFLOAT16:
        return Array(values.astype(kind.dtype, copy=False))
    words = np.ascontiguousarray(values).view(np.uint32)
    nearest = words + np.uint32(0x7FFF) + (words >> np.uint32(16) & np.uint32(1))  # ties to even
    bits = np.asarray(nearest >> np.uint32(16), "<u2").reshape(values.shape)
    if kind.stype == SType.NUMPY:
        buffer = BytesIO()
        np.save(buffer, bits.view("V2"), allow_pickle=False)
        return Array(BFLOAT16, values.shape, kind.stype, buffer.getvalue())
    return Array(BFLOAT16, values.shape, kind.stype, bits.tobytes())


def _bits(array: Array) -> NDArray[np.uint16]:
    """The 16 bits of each element of a bfloat16 tensor, whose data are plain bytes or a file of numpy's."""
    shape = tuple(array.shape)
    if array.stype == SType.NUMPY:
        try:
            bits = np.load(BytesIO(array.data), allow_pickle=False)
        except Exception as error:  # whatever numpy stumbles over in bytes that are no array
            raise ValueError(f"a tensor that can't be read ({type(error).__name__})") from None
        if bits.dtype.itemsize != 2 or bits.shape != shape:
            raise ValueError(f"a tensor of {bits.dtype} {bits.shape} where bfloat16 {shape} is announced")
        return np.ascontiguousarray(bits).view(np.uint16).reshape(shape)
    if len(array.data) != 2 * int(np.prod(shape, dtype=np.int64)):
        raise ValueError(f"{len(array.data)} bytes for a bfloat16 tensor of shape {shape}")
    return np.frombuffer(array.data, "<u2").reshape(shape).copy()


class LazyArray(Array):
    """A float32 tensor that is computed when its data are read. So many of them need little memory."""

    def __init__(self, shape: tuple[int, ...], make: Callable[[], NDArray[np.float32]]) -> None:
        self.dtype, self.shape, self.stype = "float32", shape, SType.NUMPY
        self._make = make

    def numpy(self) -> NDArray[np.float32]:
        return self._make()

    @property
    def data(self) -> bytes:  # type: ignore[override]
        return Array(self._make()).data


def kept(record: ArrayRecord) -> ArrayRecord:
    """`record` as it is now: whose it is may put other tensors into it later. No elements are copied."""
    arrays = record.items()
    return ArrayRecord({name: array if isinstance(array, LazyArray) else copy(array) for name, array in arrays})


def same_data(one: ArrayRecord, other: ArrayRecord) -> bool:
    """Whether two records hold the same tensors, to the bit."""
    return one is other or (
        one.keys() == other.keys()
        and all(one[name] is other[name] or one[name].data == other[name].data for name in one)
    )

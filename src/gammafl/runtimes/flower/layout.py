"""A model as Flower carries it, an array a tensor, and as one flat vector."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord

from gammafl.core.errors import InputError, require
from gammafl.core.kernels import Vector

WHOLE = ("*running_mean", "*running_var")
"""Running statistics: averages, not steps, so that they are sent whole and never thresholded."""


@dataclass(frozen=True)
class Layout:
    """Which tensors the flat vector holds, in order: the compressed ones, then those that are sent whole.

    Tensors of whole numbers, such as batch counters, are not in the vector: they stay as the server has them.
    """

    shapes: Mapping[str, tuple[int, ...]]
    whole: int
    """How many elements at the end are sent whole."""

    fixed: Mapping[str, Array]
    names: tuple[str, ...]
    """All names, in the order of the record."""

    @classmethod
    def of(cls, record: ArrayRecord, whole: Sequence[str] = WHOLE) -> "Layout":
        """The layout of `record`; tensors whose name matches one of `whole` are sent whole."""
        shapes = {name: tuple(array.shape) for name, array in record.items() if _is_float(name, array)}
        require(bool(shapes), "the model has no float32 tensors to train")
        last = [name for name in shapes if any(fnmatch(name, pattern) for pattern in whole)]
        ordered = {name: shapes[name] for name in (*(n for n in shapes if n not in last), *last)}
        fixed = {name: array for name, array in record.items() if name not in shapes}
        return cls(ordered, sum(_size(shapes[name]) for name in last), fixed, tuple(record))

    def facts(self) -> dict[str, Any]:
        """As JSON, for a file."""
        fixed = {name: [a.dtype, a.shape, a.stype, a.data.hex()] for name, a in self.fixed.items()}
        return {"shapes": dict(self.shapes), "whole": self.whole, "fixed": fixed, "names": self.names}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> "Layout":
        shapes = {name: tuple(shape) for name, shape in facts["shapes"].items()}
        fixed = {
            name: Array(dtype, tuple(shape), stype, bytes.fromhex(data))
            for name, (dtype, shape, stype, data) in facts["fixed"].items()
        }
        return cls(shapes, facts["whole"], fixed, tuple(facts["names"]))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The length of each tensor in the vector."""
        return tuple(_size(shape) for shape in self.shapes.values())

    @property
    def compressed_sizes(self) -> tuple[int, ...]:
        """Of those that are not sent whole."""
        stops = np.cumsum(self.sizes)
        return self.sizes[: int(np.searchsorted(stops, self.dim - self.whole, "right"))]

    @property
    def dim(self) -> int:
        return sum(self.sizes)

    def flatten(self, record: ArrayRecord, whose: str) -> Vector:
        """A new vector of what `record` holds; an error that names `whose` model does not fit."""
        vector = np.empty(self.dim, np.float32)
        start = 0
        for name, shape in self.shapes.items():
            array = record.get(name)
            found = None if array is None else (array.dtype, tuple(array.shape))
            if array is None or found != ("float32", shape):
                raise InputError(f"{whose}: tensor {name!r} must be float32 of shape {shape}, found {found}")
            stop = start + _size(shape)
            vector[start:stop] = array.numpy().reshape(-1)
            start = stop
        if extra := [name for name in record if name not in self.names]:
            raise InputError(f"{whose}: tensors that the model does not have: {', '.join(extra[:3])}")
        return vector

    def record(self, vector: Vector) -> ArrayRecord:
        """The model as Flower carries it."""
        stops = np.cumsum(self.sizes).tolist()
        parts = dict(zip(self.shapes, np.split(vector, stops[:-1]), strict=True))
        trained = {name: Array(part.reshape(self.shapes[name])) for name, part in parts.items()}
        return ArrayRecord({name: trained.get(name) or self.fixed[name] for name in self.names})


def _size(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))


def _is_float(name: str, array: Array) -> bool:
    if array.dtype == "float32":
        return True
    if array.dtype.startswith(("int", "uint", "bool")):
        return False
    raise InputError(f"tensor {name!r} is {array.dtype}; gammafl compresses float32: send it as float32")

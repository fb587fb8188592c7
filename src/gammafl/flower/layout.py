"""A model as Flower carries it, an array a tensor, and as one flat vector."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.common.constant import SType
from pydantic import Field

from gammafl.core.arrays import Vector
from gammafl.core.errors import InputError, require
from gammafl.core.layout import Layout as VectorLayout
from gammafl.core.values import HALF_MAX
from gammafl.files.reading import Count, Facts

WHOLE = ("*running_mean", "*running_var")
"""Running statistics: averages, not steps, so that they are sent whole and never thresholded."""


Shape = list[Count]


class LayoutFacts(Facts):
    """A layout in a file; of `fixed` the type, the shape and the serialisation, without the data."""

    shapes: dict[str, Shape]
    types: dict[str, Literal["float16", "float32", "float64"]]
    whole: Count
    fixed: dict[str, Annotated[tuple[str, Shape, str], Field(strict=False)]]
    names: list[str]


@dataclass(frozen=True)
class Layout:
    """Which tensors the flat vector holds, in order: the compressed ones, then those that are sent whole.

    The vector is float32; tensors of another precision are rounded to it, and back. Tensors of whole numbers, such as
    batch counters, are not in the vector: they stay as the server has them.
    """

    shapes: Mapping[str, tuple[int, ...]]
    types: Mapping[str, str]
    whole: int
    """How many elements at the end are sent whole."""

    fixed: Mapping[str, Array]
    names: tuple[str, ...]
    """All names, in the order of the record."""

    @classmethod
    def of(cls, record: ArrayRecord, whole: Sequence[str] = WHOLE) -> "Layout":
        """The layout of `record`; tensors whose name matches one of `whole` are sent whole."""
        shapes = {name: tuple(array.shape) for name, array in record.items() if _is_float(name, array)}
        require(bool(shapes), "the model has no tensors of floating-point numbers")
        last = [name for name in shapes if any(fnmatch(name, pattern) for pattern in whole)]
        ordered = {name: shapes[name] for name in (*(n for n in shapes if n not in last), *last)}
        fixed = {name: array for name, array in record.items() if name not in shapes}
        types = {name: record[name].dtype for name in ordered}
        return cls(ordered, types, sum(_size(shapes[name]) for name in last), fixed, tuple(record))

    def facts(self) -> dict[str, Any]:
        """As JSON, for a file; `fixed` without its data."""
        fixed = {name: [array.dtype, array.shape, array.stype] for name, array in self.fixed.items()}
        parts = {"shapes": dict(self.shapes), "types": dict(self.types), "whole": self.whole}
        return parts | {"fixed": fixed, "names": self.names}

    @classmethod
    def from_facts(cls, facts: "LayoutFacts", data: Mapping[str, bytes]) -> "Layout":
        """The layout of `facts`, with the data of its fixed tensors; a `ValueError` if they make no sense."""
        shapes = {name: tuple(shape) for name, shape in facts.shapes.items()}
        fixed = {name: _fixed(data[name], *facts.fixed[name]) for name in facts.fixed}
        layout = cls(shapes, facts.types, facts.whole, fixed, tuple(facts.names))
        if sorted(layout.names) != sorted((*shapes, *fixed)) or shapes.keys() != facts.types.keys():
            raise ValueError("the names of the model's tensors do not fit together")
        if not shapes or facts.whole > layout.dim:
            raise ValueError(f"{facts.whole} elements of {layout.dim} are sent whole")
        return layout

    @property
    def sizes(self) -> tuple[int, ...]:
        """The length of each tensor in the vector."""
        return tuple(_size(shape) for shape in self.shapes.values())

    @property
    def compressed_sizes(self) -> tuple[int, ...]:
        """Of those that are not sent whole."""
        stops = np.cumsum(self.sizes)
        return self.sizes[: int(np.searchsorted(stops, self.dim - self.whole, "right"))]

    @cached_property
    def vector(self) -> VectorLayout:
        """The layout of the flat vector."""
        compressed = len(self.compressed_sizes)
        items = list(self.shapes.items())
        return VectorLayout.of(dict(items[:compressed]), dict(items[compressed:]))

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
            if array is None or found != (self.types[name], shape):
                raise InputError(f"{whose}: tensor {name!r} must be {self.types[name]} of shape {shape}, found {found}")
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
        trained = {
            name: Array(part.reshape(self.shapes[name]).astype(self.types[name], copy=False))
            for name, part in parts.items()
        }
        return ArrayRecord({name: trained.get(name) or self.fixed[name] for name in self.names})

    def clamp(self, vector: Vector) -> None:
        """Elements of 16-bit tensors beyond what 16 bits hold are set to the largest that they do."""
        for name, part in self.vector.split(vector).items():
            if self.types[name] == "float16":
                np.clip(part, -HALF_MAX, HALF_MAX, out=part)

    def rounded(self, vector: Vector) -> Vector:
        """`vector` as the tensors of `record(vector)` hold it, which may be less precise."""
        exact = "float16" not in self.types.values()
        return vector if exact else self.flatten(self.record(vector), "the model")


def _fixed(data: bytes, dtype: str, shape: Sequence[int], stype: str) -> Array:
    """A tensor from a file, if its data are of that type and shape."""
    array = Array(dtype, tuple(shape), stype, data)
    if stype == SType.NUMPY:
        try:
            found = array.numpy()
        except Exception as error:  # whatever numpy stumbles over in bytes that are no array
            raise ValueError(f"a tensor that can't be read ({type(error).__name__})") from None
        if (str(found.dtype), found.shape) != (dtype, array.shape):
            raise ValueError(f"a tensor of {found.dtype} where {dtype} is announced")
    return array


def _size(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))


def _is_float(name: str, array: Array) -> bool:
    if array.dtype in ("float16", "float32", "float64"):
        return True
    if array.dtype.startswith(("int", "uint", "bool")):
        return False
    raise InputError(f"tensor {name!r} is {array.dtype}, which can't be averaged; send it as float32")

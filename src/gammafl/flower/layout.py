"""A model in two forms: Flower's, with one array per tensor, and one flat vector."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Annotated, Any, Literal

import numpy as np
from flwr.app import Array, ArrayRecord
from pydantic import Field

from gammafl.core.arrays import Vector
from gammafl.core.errors import InputError, require
from gammafl.core.layout import Layout as VectorLayout
from gammafl.core.values import HALF_MAX
from gammafl.files.reading import Count, Facts
from gammafl.flower.arrays import BFLOAT16, HALF, Floats, floats_in, floats_out, numpy_of

WHOLE = ("*running_mean", "*running_var")
"""Running statistics. They are averages, not sums of steps: they are sent whole and never thresholded."""


Shape = list[Count]


class LayoutFacts(Facts):
    """A layout in a file or an offer. `fixed` has types, shapes and serialisations, but not the data."""

    shapes: dict[str, Shape]
    types: dict[str, Annotated[tuple[Literal["float16", "float32", "float64", "bfloat16"], str], Field(strict=False)]]
    whole: Count
    fixed: dict[str, Annotated[tuple[str, Shape, str], Field(strict=False)]]
    names: list[str]
    tied: dict[str, str] = Field(default_factory=dict)


@dataclass(frozen=True)
class Layout:
    """The tensors in the flat vector, in order: first the compressed ones, then those that are sent whole.

    The vector is float32; tensors of another precision are rounded to it, and back. Tensors of whole numbers, such as
    batch counters, are not in the vector: clients use the server's. Of tied tensors the vector holds one.
    """

    shapes: Mapping[str, tuple[int, ...]]
    types: Mapping[str, Floats]
    """Name → the type of the tensor, and how Flower serialises it, for each tensor in the vector."""

    whole: int
    """How many elements at the end of the vector are sent whole."""

    fixed: Mapping[str, Array]
    names: tuple[str, ...]
    """All names, in the order of the record."""

    tied: Mapping[str, str] = field(default_factory=dict)
    """Name of a tensor → name of the one in the vector that it is tied to."""

    @classmethod
    def of(cls, record: ArrayRecord, whole: Sequence[str] = WHOLE, tied: Mapping[str, str] | None = None) -> "Layout":
        """The layout of `record`; tensors whose name matches one of `whole` are sent whole."""
        tied = {name: first for name, first in (tied or {}).items() if name in record}
        floats = {name: array for name, array in record.items() if _is_float(name, array)}
        shapes = {name: tuple(array.shape) for name, array in floats.items() if name not in tied}
        require(any(map(_size, shapes.values())), "the model has no tensors of floating-point numbers")
        require(tied.keys() <= floats.keys() and set(tied.values()) <= shapes.keys(), f"no such tensors: {tied}")
        last = [name for name in shapes if any(fnmatch(name, pattern) for pattern in whole)]
        ordered = {name: shapes[name] for name in (*(n for n in shapes if n not in last), *last)}
        fixed = {name: array for name, array in record.items() if name not in floats}
        types = {name: Floats(array.dtype, array.stype) for name, array in floats.items()}
        return cls(ordered, types, sum(_size(shapes[name]) for name in last), fixed, tuple(record), tied)

    def facts(self) -> dict[str, Any]:
        """The layout as JSON, for a file or an offer; without the data of `fixed`."""
        fixed = {name: [array.dtype, array.shape, array.stype] for name, array in self.fixed.items()}
        parts = {"shapes": dict(self.shapes), "types": dict(self.types), "whole": self.whole}
        return parts | {"fixed": fixed, "names": self.names, "tied": dict(self.tied)}

    @classmethod
    def from_facts(cls, facts: "LayoutFacts", data: Mapping[str, bytes]) -> "Layout":
        """The layout of `facts`, with the data of its fixed tensors. A `ValueError` if they contradict each other."""
        shapes = {name: tuple(shape) for name, shape in facts.shapes.items()}
        fixed = {name: _fixed(data[name], *facts.fixed[name]) for name in facts.fixed if name in data}
        types = {name: Floats(*kind) for name, kind in facts.types.items()}
        layout = cls(shapes, types, facts.whole, fixed, tuple(facts.names), facts.tied)
        fit = sorted(layout.names) == sorted((*shapes, *facts.fixed, *facts.tied))
        if not fit or types.keys() != {*shapes, *facts.tied} or not set(facts.tied.values()) <= shapes.keys():
            raise ValueError("the names of the model's tensors contradict each other")
        if not shapes or facts.whole > layout.dim:
            raise ValueError(f"{facts.whole} elements sent whole, of a model of {layout.dim}")
        return layout

    @property
    def sizes(self) -> tuple[int, ...]:
        """The length of each tensor in the vector."""
        return tuple(_size(shape) for shape in self.shapes.values())

    @property
    def compressed_sizes(self) -> tuple[int, ...]:
        """The length of each tensor that is not sent whole."""
        stops = np.cumsum(self.sizes)
        return self.sizes[: int(np.searchsorted(stops, self.dim - self.whole, "right"))]

    @cached_property
    def vector(self) -> VectorLayout:
        """The layout of the flat vector."""
        compressed = len(self.compressed_sizes)
        items = list(self.shapes.items())
        return VectorLayout.of(dict(items[:compressed]), dict(items[compressed:]))

    @cached_property
    def places(self) -> dict[str, slice]:
        """Name → the slice of the vector with its elements. Tied tensors share a slice."""
        stops = list(accumulate(self.sizes, initial=0))
        own = {name: slice(*ends) for name, ends in zip(self.shapes, pairwise(stops), strict=True)}
        return own | {name: own[first] for name, first in self.tied.items()}

    @cached_property
    def dim(self) -> int:
        return sum(self.sizes)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.shapes[self.tied.get(name, name)]

    def flatten(self, record: ArrayRecord, whose: str, names: Collection[str] | None = None) -> Vector:
        """A new vector with the tensors of `record`.

        record   must hold all tensors, or those of `names`; the elements of the others are 0
        whose    names the model in errors, such as "the server's model"
        """
        vector = np.zeros(self.dim, np.float32)
        for name, shape in self.shapes.items():
            if names is not None and name not in names:
                continue
            array = record.get(name)
            found = None if array is None else (array.dtype, tuple(array.shape))
            if array is None or array.dtype not in FLOATS or tuple(array.shape) != shape:
                raise InputError(
                    f"{whose}: tensor {name!r} must be {self.types[name].dtype} of shape {shape}, found {found}"
                )
            vector[self.places[name]] = floats_in(array).reshape(-1)
        if extra := [name for name in record if name not in self.names]:
            raise InputError(f"{whose}: tensors that the model does not have: {', '.join(extra[:3])}")
        return vector

    def check(self, record: ArrayRecord, whose: str) -> None:
        """Refuses tied tensors and tensors of whole numbers of a wrong type or shape. `flatten` does not read them."""
        for name, array in record.items():
            if name not in self.tied and name not in self.fixed:
                continue
            dtype, shape = (self.types[name].dtype, self.shape(name)) if name in self.tied else _kind(self.fixed[name])
            try:
                fits = (array.dtype, tuple(array.shape)) == (dtype, shape)
                finite = fits and bool(np.isfinite(floats_in(array)).all())
            except InputError as error:
                raise InputError(f"{whose}: {name!r} is {error}") from None
            require(finite, f"{whose}: tensor {name!r} must be {dtype} of shape {shape}, and finite")

    def require_tied(self, record: ArrayRecord) -> None:
        """Refuses a model in which tied tensors differ."""
        for name, first in self.tied.items():
            if name in record and first in record and record[name].data != record[first].data:
                raise InputError(
                    f"tensors {name!r} and {first!r} were equal at first and seemed to be tied, but training made them"
                    " differ; write Compressed(…, tied=False) on the server"
                )

    def record(self, vector: Vector, names: Iterable[str] | None = None) -> ArrayRecord:
        """The model as a record of Flower's; only the tensors `names`, if they are given."""
        arrays = {}
        for name in self.names if names is None else names:
            if name in self.fixed:
                arrays[name] = self.fixed[name]
            else:
                arrays[name] = floats_out(vector[self.places[name]].reshape(self.shape(name)), self.types[name])
        return ArrayRecord(arrays)

    def exact_record(self, vector: Vector, like: ArrayRecord) -> ArrayRecord:
        """The tensors of `like`; those of floats with the values of `vector`, in float32."""
        arrays = {}
        for name, array in like.items():
            part = None if name in self.fixed else vector[self.places[name]].reshape(self.shape(name))
            arrays[name] = array if part is None else Array(part)
        return ArrayRecord(arrays)

    def clamp(self, vector: Vector) -> None:
        """Sets elements of float16 tensors that are too large for float16 to its largest value."""
        for name, part in self.vector.split(vector).items():
            if self.types[name].dtype == "float16":
                np.clip(part, -HALF_MAX, HALF_MAX, out=part)

    @cached_property
    def half(self) -> bool:
        """Whether any tensor has less precision than float32."""
        return any(kind.dtype in HALF for kind in self.types.values())

    def held(self, vector: Vector) -> Vector:
        """`vector` as the tensors can hold it, with finite elements only."""
        if not self.half:
            return vector
        within = vector.copy()
        self.clamp(within)
        return self.rounded(within)

    def rounded(self, vector: Vector) -> Vector:
        """`vector` rounded to the precision of the tensors in `record(vector)`."""
        if not self.half:
            return vector
        return self.flatten(self.record(vector, self.shapes), "the model", self.shapes)


FLOATS = ("float16", "float32", "float64", BFLOAT16)


def tied_tensors(record: ArrayRecord) -> dict[str, str]:
    """Name → name of an earlier tensor with the same numbers; these tensors count as tied.

    A tensor whose elements are all equal, such as zeros, does not count as tied.
    """
    first: dict[tuple[Any, ...], str] = {}
    tied = {}
    for name, array in record.items():
        if array.dtype not in FLOATS:
            continue
        original = first.setdefault((array.dtype, tuple(array.shape), array.data), name)
        if original != name and not _constant(array):
            tied[name] = original
    return tied


def _constant(array: Array) -> bool:
    values = floats_in(array).reshape(-1)
    return values.size < 2 or bool((values == values[0]).all())


def _fixed(data: bytes, dtype: str, shape: Sequence[int], stype: str) -> Array:
    """A tensor from a file. A `ValueError` if its data do not have this type and shape."""
    array = Array(dtype, tuple(shape), stype, data)
    numpy_of(array)
    return array


def _kind(array: Array) -> tuple[str, tuple[int, ...]]:
    return array.dtype, tuple(array.shape)


def _size(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))


def _is_float(name: str, array: Array) -> bool:
    if array.dtype in FLOATS:
        return True
    if array.dtype.startswith(("int", "uint", "bool")):
        return False
    raise InputError(f"tensor {name!r} is {array.dtype}, which can't be averaged; send it as float32")

"""The layout of a model's flat vector: where each tensor is."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gammafl.core.arrays import Vector
from gammafl.core.errors import require

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Layout:
    """The tensors of a flat vector, in order. Usually made with `Layout.of`.

    compressed   (name, shape) of each compressed tensor
    whole        (name, shape) of each tensor after them, which is sent whole, such as running statistics

    >>> layout = Layout.of({"weight": (2, 3), "bias": (2,)})
    >>> layout.dim, layout.sizes
    (8, (6, 2))
    """

    compressed: tuple[tuple[str, tuple[int, ...]], ...]
    whole: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @classmethod
    def of(cls, compressed: Shapes, whole: Shapes | None = None) -> "Layout":
        """The layout of tensors with these names and shapes: `compressed` ones, then those that are sent `whole`."""
        parts = ({name: tuple(map(int, shape)) for name, shape in (part or {}).items()} for part in (compressed, whole))
        return cls(*(tuple(part.items()) for part in parts))

    @classmethod
    def flat(cls, dim: int) -> "Layout":
        """The layout of one tensor with `dim` elements."""
        return cls((("", (dim,)),))

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name → shape of each tensor, in the order of the vector."""
        return dict((*self.compressed, *self.whole))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The length of each compressed tensor."""
        return tuple(_size(shape) for _, shape in self.compressed)

    @cached_property
    def tail(self) -> int:
        """How many elements at the end are sent whole."""
        return sum(_size(shape) for _, shape in self.whole)

    @cached_property
    def dim(self) -> int:
        """The length of the vector."""
        return sum(self.sizes) + self.tail

    def split(self, vector: Vector) -> dict[str, Vector]:
        """Name → tensor, as views of `vector`."""
        require(vector.shape == (self.dim,), f"a vector of shape {vector.shape} for a model of {self.dim} elements")
        stops = np.cumsum([_size(shape) for shape in self.shapes.values()])[:-1]
        parts = np.split(vector, stops) if self.shapes else []
        return {name: part.reshape(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}

    def fingerprint(self) -> str:
        """Sixteen letters that differ for other names, shapes or orders."""
        return hashlib.sha256(json.dumps([self.compressed, self.whole]).encode()).hexdigest()[:16]


def _size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))

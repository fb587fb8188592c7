"""Models as users have them, a vector, a dict of arrays or tensors, a torch module, and the one flat vector.

Nothing here needs torch: a tensor is whatever has `detach`, a module whatever has `state_dict`.
"""

from collections.abc import Mapping
from fnmatch import fnmatch
from typing import Any

import numpy as np

from gammafl.core.arrays import Vector
from gammafl.core.errors import InputError, require
from gammafl.core.inputs import floats_of
from gammafl.core.layout import Layout

WHOLE = ("*running_mean", "*running_var")
"""Running statistics: averages, not steps, so that they are sent whole and never thresholded."""


def layout_like(like: Any) -> Layout:
    """The layout of a model: of a module, a dict of tensors, a vector, or a number of elements.

    Tensors of whole numbers, such as batch counters, are left out: they stay as each side has them. Tensors that share
    their memory are one.
    """
    if isinstance(like, Layout):
        return like
    if isinstance(like, int | np.integer):
        dim = int(like)
        require(dim >= 1, f"a model needs at least one element, got {dim}")
        return Layout.flat(dim)
    if not _is_named(like):
        return Layout.flat(floats_of(like, "like").size)
    shapes, seen = {}, set()
    for name, tensor in _tensors(like).items():
        memory = _memory(tensor)
        if memory is None or memory not in seen:  # of tied tensors the first: they are one
            shapes[name] = tuple(tensor.shape)
            seen.add(memory)
    require(bool(shapes), "the model has no tensors of floating-point numbers")
    whole = {name: shape for name, shape in shapes.items() if any(fnmatch(name, pattern) for pattern in WHOLE)}
    return Layout.of({name: shape for name, shape in shapes.items() if name not in whole}, whole)


def flatten(model: Any, layout: Layout, whose: str) -> Vector:
    """A new float32 vector of what `model` holds; an error that names `whose` model does not fit."""
    if not _is_named(model):
        vector = floats_of(model, whose)
        require(vector.size == layout.dim, f"{whose} has {vector.size} elements, not {layout.dim}")
        return vector.copy()
    tensors, vector = _tensors(model), np.empty(layout.dim, np.float32)
    for name, part in layout.split(vector).items():
        found = None if name not in tensors else tuple(tensors[name].shape)
        require(found == part.shape, f"{whose}: tensor {name!r} must be of shape {part.shape}, found {found}")
        part[...] = _array(tensors[name])
    return vector


def write_back(vector: Vector, model: Any, layout: Layout) -> None:
    """`model` ← the values of `vector`, in place, in its own precision and on its own device."""
    for tensor, part in _targets(model, layout, vector):
        _assign(tensor, part)


def require_writable(model: Any, layout: Layout) -> None:
    """Refuses a model that `write_back` could not change as a whole."""
    for tensor, _ in _targets(model, layout, np.empty(layout.dim, np.float32)):
        is_array = isinstance(tensor, np.ndarray) and tensor.flags.writeable
        if not (is_array or hasattr(tensor, "detach")) or "float" not in str(tensor.dtype):
            raise InputError(
                "the model must be of arrays or tensors of floats that can be changed in place; one part is a"
                f" {type(tensor).__name__}" + (" that can't be written" if isinstance(tensor, np.ndarray) else "")
            )


def _targets(model: Any, layout: Layout, vector: Vector) -> list[tuple[Any, Vector]]:
    if not _is_named(model):
        return [(model, vector)]
    tensors = _tensors(model)
    return [(tensors[name], part) for name, part in layout.split(vector).items()]


def _memory(tensor: Any) -> tuple[Any, ...] | None:
    """Where a tensor lies; the same for tensors that are tied. None where that can't be told."""
    if isinstance(tensor, np.ndarray):
        return tensor.__array_interface__["data"][0], tensor.shape, tensor.strides
    try:
        place = tensor.data_ptr()
    except (AttributeError, RuntimeError):
        return None
    return (place, tuple(tensor.shape), tensor.stride()) if place else None


def _is_named(model: Any) -> bool:
    return isinstance(model, Mapping) or hasattr(model, "state_dict")


def _tensors(model: Any) -> dict[str, Any]:
    """Name → tensor of floating-point numbers."""
    named: Mapping[str, Any] = model if isinstance(model, Mapping) else model.state_dict()
    for name, tensor in named.items():
        kind = str(getattr(tensor, "dtype", type(tensor).__name__))
        known = hasattr(tensor, "dtype") and ("float" in kind or "int" in kind or "bool" in kind)
        require(
            known, f"{name!r} is {kind}; a model is of arrays or tensors of floats, and of whole numbers beside them"
        )
    return {name: tensor for name, tensor in named.items() if "float" in str(tensor.dtype)}


def _array(tensor: Any) -> Any:
    if hasattr(tensor, "detach"):
        return tensor.detach().cpu().float().numpy()
    return tensor


def _assign(tensor: Any, values: Vector) -> None:
    if hasattr(tensor, "detach"):
        plain = tensor.detach()  # shares the memory
        plain.copy_(plain.new_tensor(values))
    else:
        tensor[...] = values

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

    Tensors of whole numbers, such as batch counters, are left out: they stay as each side has them.
    """
    if isinstance(like, Layout):
        return like
    if isinstance(like, int | np.integer):
        dim = int(like)
        require(dim >= 1, f"a model needs at least one element, got {dim}")
        return Layout.flat(dim)
    if not _is_named(like):
        return Layout.flat(floats_of(like, "like").size)
    shapes = {name: tuple(tensor.shape) for name, tensor in _tensors(like).items()}
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
    if not _is_named(model):
        if not isinstance(model, np.ndarray) and not hasattr(model, "detach"):
            raise InputError(f"the model must be changed in place, which a {type(model).__name__} can't be")
        _assign(model, vector)
        return
    tensors = _tensors(model)
    for name, part in layout.split(vector).items():
        _assign(tensors[name], part)


def _is_named(model: Any) -> bool:
    return isinstance(model, Mapping) or hasattr(model, "state_dict")


def _tensors(model: Any) -> dict[str, Any]:
    """Name → tensor of floating-point numbers."""
    named: Mapping[str, Any] = model if isinstance(model, Mapping) else model.state_dict()
    return {name: tensor for name, tensor in named.items() if "float" in str(getattr(tensor, "dtype", ""))}


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

"""Converts models to one flat vector and back: a vector, a dict of arrays or tensors, or a torch module.

Nothing here imports torch: every object with `detach` counts as a tensor, every object with `state_dict` as a module.
"""

from collections.abc import Mapping
from fnmatch import fnmatch
from typing import Any, cast

import numpy as np

from gammafl.core.arrays import Vector
from gammafl.core.device.places import HOST_MEMORY, Place
from gammafl.core.device.vectors import DeviceVector, is_on_device, vector_on
from gammafl.core.errors import InputError, require
from gammafl.core.inputs import floats_of
from gammafl.core.layout import Layout

WHOLE = ("*running_mean", "*running_var")
"""Running statistics. They are averages, not sums of steps: they are sent whole and never thresholded."""


def layout_like(like: Any) -> Layout:
    """The layout of a model: a module, a dict of tensors, a vector, or a number of elements.

    Tensors of whole numbers, such as batch counters, are left out: they are not sent. Tensors that share their memory
    count as one.
    """
    if isinstance(like, Layout):
        return like
    if isinstance(like, int | np.integer):
        dim = int(like)
        require(dim >= 1, f"a model needs at least one element, got {dim}")
        return Layout.flat(dim)
    if not _is_named(like):
        return Layout.flat((vector_on(like, "like") if is_on_device(like) else floats_of(like, "like")).size)
    shapes, seen = {}, set()
    for name, tensor in _tensors(like).items():
        memory = _memory(tensor)
        if memory is None or memory not in seen:  # of tied tensors, only the first
            shapes[name] = tuple(tensor.shape)
            seen.add(memory)
    require(bool(shapes), "the model has no tensors of floating-point numbers")
    whole = {name: shape for name, shape in shapes.items() if any(fnmatch(name, pattern) for pattern in WHOLE)}
    return Layout.of({name: shape for name, shape in shapes.items() if name not in whole}, whole)


def flatten(model: Any, layout: Layout, whose: str, place: Place = HOST_MEMORY) -> Vector:
    """A new float32 vector in `place` with the elements of `model`. `whose` names the model in errors."""
    if not _is_named(model):
        held = vector_on(model, whose) if is_on_device(model) else floats_of(model, whose)
        require(held.size == layout.dim, f"{whose} has {held.size} elements, not {layout.dim}")
        return cast(Vector, place.put(held.copy()))
    tensors = _tensors(model)
    for name, shape in layout.shapes.items():
        found = None if name not in tensors else tuple(tensors[name].shape)
        require(found == shape, f"{whose}: tensor {name!r} must be of shape {shape}, found {found}")
    if not place.is_host:
        return cast(Vector, place.joined([tensors[name] for name in layout.shapes]))
    vector = np.empty(layout.dim, np.float32)
    for name, part in layout.split(vector).items():
        part[...] = _array(tensors[name])
    return vector


def unflatten(vector: Any, layout: Layout, like: Any) -> Any:
    """`vector` in the form of the model `like`: a dict for a dict or a module; tensors if `vector` is on a device."""
    if not isinstance(vector, DeviceVector):
        return layout.split(vector) if _is_named(like) else vector
    parts = vector.tensors(layout.shapes.values())
    return dict(zip(layout.shapes, parts, strict=True)) if _is_named(like) else vector.tensors([(vector.size,)])[0]


def has_tensors(model: Any) -> bool:
    """Whether `model` holds elements, and is not only their number."""
    return _is_named(model) or is_on_device(model)


def tensors_of(model: Any) -> list[Any]:
    """The tensors of a model; for a vector, the vector itself."""
    return list(_tensors(model).values()) if _is_named(model) else [model]


def write_back(vector: Any, model: Any, layout: Layout) -> None:
    """`model` ← the values of `vector`, in place, in its own precision and on its own device."""
    if isinstance(vector, DeviceVector):
        for tensor, part in zip(_parts(model, layout), vector.tensors(layout.shapes.values()), strict=True):
            tensor.detach().copy_(part.reshape(tensor.shape))
        return
    for tensor, part in _targets(model, layout, vector):
        _assign(tensor, part)


def require_writable(model: Any, layout: Layout) -> None:
    """Refuses a model if `write_back` can't write all its parts."""
    for tensor, _ in _targets(model, layout, np.empty(layout.dim, np.float32)):
        is_array = isinstance(tensor, np.ndarray) and tensor.flags.writeable
        if not (is_array or hasattr(tensor, "detach")) or "float" not in str(tensor.dtype):
            raise InputError(
                "the model must consist of arrays or tensors of floats that can be changed in place; one part is a"
                f" {type(tensor).__name__}" + (" that can't be written" if isinstance(tensor, np.ndarray) else "")
            )


def _targets(model: Any, layout: Layout, vector: Vector) -> list[tuple[Any, Vector]]:
    if not _is_named(model):
        return [(model, vector)]
    return list(zip(_parts(model, layout), layout.split(vector).values(), strict=True))


def _parts(model: Any, layout: Layout) -> list[Any]:
    """The model's tensors, in the order of the layout."""
    if not _is_named(model):
        return [model]
    tensors = _tensors(model)
    return [tensors[name] for name in layout.shapes]


def _memory(tensor: Any) -> tuple[Any, ...] | None:
    """An identifier of a tensor's memory, the same for tied tensors; None if it is not known, or without elements."""
    if 0 in tensor.shape:
        return None
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
            known, f"{name!r} is {kind}; a model has arrays or tensors of floats, and may have some of whole numbers"
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

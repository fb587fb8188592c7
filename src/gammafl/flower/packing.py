"""Packs plain values, arrays and containers of them, of Python and of Flower, as JSON and bytes for a file."""

import sys
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from gammafl.flower.arrays import array_record, numpy_of, state_dict

Bytes = NDArray[np.uint8]

PLAIN = (type(None), bool, int, float, str)
RECORDS = {kind.__name__: kind for kind in (ArrayRecord, ConfigRecord, MetricRecord, RecordDict)}
LISTS: dict[str, Callable[..., Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset}
DICTS: dict[str, Callable[..., Any]] = {"dict": dict, "OrderedDict": OrderedDict, "Counter": Counter}
FACTORIES: dict[str, Any] = {"None": None} | {kind.__name__: kind for kind in (int, float, bool, str, list, dict, set)}
"""Name → factory of a defaultdict."""

KIND = "$"
"""The key for an object's kind. Lists and plain values have no kind: JSON has them too."""


class NotPlainError(TypeError):
    """A value that can't be packed; `path` says where it is."""

    def __init__(self, path: str, value: Any) -> None:
        super().__init__(f"{path}, a {type(value).__module__}.{type(value).__qualname__}")
        self.path = path


class Packer:
    """Packs values. `tensors` holds the bytes of their arrays, by number; of a shared array only once.

    >>> packer = Packer()
    >>> packed = packer.pack({"a": [1, 2.5], "moments": (np.ones(3),)})
    >>> unpack(packed, packer.tensors)
    {'a': [1, 2.5], 'moments': (array([1., 1., 1.]),)}
    """

    def __init__(self) -> None:
        self.tensors: dict[str, Bytes] = {}
        self._numbers: dict[int, str] = {}
        self._alive: list[Any] = []
        """The objects whose ids are in `_numbers`. While they live, no other object gets their id."""

    def pack(self, value: Any, path: str = "value") -> Any:
        """`value` as JSON; a `NotPlainError` for what is neither plain nor an array."""
        if type(value) in PLAIN:
            return value
        if type(value) is list:
            return self._each(value, path)
        if type(value).__name__ in LISTS and type(value) is LISTS[type(value).__name__]:
            return {KIND: type(value).__name__, "items": self._each(value, path)}
        if isinstance(value, Array):
            stored = self._store(value, lambda: np.frombuffer(value.data, np.uint8))
            return {KIND: "Array", "dtype": value.dtype, "shape": list(value.shape), "stype": value.stype, "at": stored}
        for name, kind in RECORDS.items():
            if isinstance(value, kind):
                return {KIND: name, "items": self._pairs(value, path)}
        if type(value) in DICTS.values():
            return {KIND: type(value).__name__, "items": self._pairs(value, path)}
        if type(value) is defaultdict and value.default_factory in FACTORIES.values():
            made = getattr(value.default_factory, "__name__", "None")
            return {KIND: "defaultdict", "of": made, "items": self._pairs(value, path)}
        if isinstance(value, bytes):
            return {KIND: "bytes", "at": self._store(value, lambda: np.frombuffer(value, np.uint8))}
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufc" and not np.ma.isMA(value):
            return self._numpy(value)
        if is_torch(value):
            (packed,) = self._pairs(array_record({"": value}), path)
            return {KIND: "torch", "array": packed[1], "device": str(value.device)}
        raise NotPlainError(path, value)

    def _each(self, values: Any, path: str) -> list[Any]:
        return [self.pack(value, f"{path}[{i}]") for i, value in enumerate(values)]

    def _pairs(self, values: Mapping[Any, Any], path: str) -> list[Any]:
        return [
            [self.pack(key, f"{path}'s key"), self.pack(value, f"{path}[{key!r:.40}]")] for key, value in values.items()
        ]

    def _numpy(self, value: Any) -> dict[str, Any]:
        stored = self._store(value, lambda: np.ascontiguousarray(value).reshape(-1).view(np.uint8))
        kind = "array" if isinstance(value, np.ndarray) else "scalar"
        return {KIND: kind, "dtype": value.dtype.str, "shape": list(value.shape), "at": stored}

    def _store(self, value: Any, data: Callable[[], Bytes]) -> str:
        if id(value) not in self._numbers:
            self._numbers[id(value)] = name = str(len(self.tensors))
            self._alive.append(value)
            self.tensors[name] = data()
        return self._numbers[id(value)]


def unpack(packed: Any, tensors: Mapping[str, Bytes]) -> Any:
    """The value that was packed. A `ValueError` or `KeyError` for what no `Packer` makes."""
    if type(packed) in PLAIN:
        return packed
    if isinstance(packed, list):
        return [unpack(value, tensors) for value in packed]
    kind = packed[KIND]
    if kind in LISTS:
        return LISTS[kind](unpack(packed["items"], tensors))
    if kind == "defaultdict" or kind in DICTS or kind in RECORDS:
        items = {unpack(key, tensors): unpack(value, tensors) for key, value in packed["items"]}
        if kind == "defaultdict":
            return defaultdict(FACTORIES[packed["of"]], items)
        return (DICTS | RECORDS)[kind](items)
    if kind == "torch":
        (tensor,) = state_dict(ArrayRecord({"": unpack(packed["array"], tensors)})).values()
        return tensor.to(packed["device"])
    data = tensors[packed["at"]]
    if kind == "bytes":
        return data.tobytes()
    if kind == "Array":
        array = Array(packed["dtype"], tuple(packed["shape"]), packed["stype"], data.tobytes())
        numpy_of(array)
        return array
    if kind not in ("array", "scalar") or (dtype := np.dtype(packed["dtype"])).kind not in "biufc":
        raise ValueError(f"a value of the unknown kind {kind!r:.40}")
    values = np.frombuffer(data.tobytes(), dtype).reshape(packed["shape"])
    return values.copy() if kind == "array" else values[()]


def is_torch(value: Any) -> bool:
    """Whether `value` is a tensor of torch, without an import of torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)

"""Tensors in safetensors files, with a checksum.

The checksum shows that a file is complete, but not who wrote it. So the content is checked like any other input.
"""

import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from gammafl.core import kernels
from gammafl.files import atomic, private_files
from gammafl.files.reading import require_regular

Tensor = NDArray[Any]
Facts = dict[str, Any]

DAMAGED = (SafetensorError, KeyError, TypeError, ValueError, RecursionError)
"""The exceptions for a file whose content can't be used. An `OSError` says nothing about the content."""

TYPES = {"float32": ("F32", "<f4"), "uint8": ("U8", "|u1")}
FLOATS, BYTES = "F32", "U8"


class Kind(NamedTuple):
    """The type ("F32" or "U8") and the shape of a tensor, from the file's header."""

    type: str
    shape: tuple[int, ...]


def replace(
    path: Path,
    tensors: Mapping[str, Tensor],
    facts: Facts | None = None,
    mode: int = private_files.FILE,
    previous: Path | None = None,
) -> None:
    """Writes a safetensors file with `facts` and a checksum, as `atomic.replacing` does. `path` has one writer.

    The library's own writer is not used. Its errors have no errno, so a full disk can't be told from one that is
    read-only; every file that it writes is private; and after kill -9 it leaves a file with a random name that nobody
    removes. Before version 0.8 it also takes as much memory again as the tensors do.
    """
    header: Facts = {}
    if facts is not None:
        header["__metadata__"] = {"gammafl": json.dumps(facts | {"checksum": _checksum(facts, tensors)})}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.nbytes
        kind = TYPES[str(tensor.dtype)][0]
        header[name] = {"dtype": kind, "shape": tensor.shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with atomic.replacing(path, mode, one_writer=True, previous=previous) as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            stream.write(np.ascontiguousarray(tensor, TYPES[str(tensor.dtype)][1]).data)


def read(path: Path) -> tuple[Facts, "Tensors"]:
    """The facts and the tensors of a file that `replace` wrote. Any other file raises one of `DAMAGED`.

    The tensors have one of the two types that `replace` writes, and all their values are finite.
    """
    require_regular(path)
    with safe_open(path, framework="numpy") as file:
        facts = json.loads((file.metadata() or {}).get("gammafl", "null"))
    if not isinstance(facts, dict):
        raise ValueError("gammafl did not write it")
    checksum = facts.pop("checksum", None)
    tensors = Tensors(path)
    if _checksum(facts, tensors) != checksum:
        raise ValueError("its checksum differs")
    return facts, tensors


class Tensors(Mapping[Any, Tensor]):
    """The tensors of a file by name. Each access reads one tensor from the disk.

    With a `prefix`, only the tensors whose names start with it. The keys are then the numbers that follow the prefix.
    """

    def __init__(self, path: Path, prefix: str = "") -> None:
        self.path = path
        self.prefix = prefix
        self.kinds: dict[Any, Kind] = {}
        """The type and shape of each tensor, from the header."""

        with safe_open(path, framework="numpy") as file:
            self.names = {self._key(name): name for name in file.keys() if name.startswith(prefix)}  # noqa: SIM118
            for key, name in self.names.items():
                header = file.get_slice(name)
                self.kinds[key] = Kind(header.get_dtype(), tuple(header.get_shape()))
        if strange := [kind.type for kind in self.kinds.values() if kind.type not in (FLOATS, BYTES)]:
            raise ValueError(f"it has a tensor of type {strange[0]}")

    def _key(self, name: str) -> Any:
        if not self.prefix:
            return name
        text = name.removeprefix(self.prefix)
        if not (text.isascii() and text.isdigit() and len(text) < 20 and str(int(text)) == text):
            raise ValueError(f"it has a tensor with the name {name[:60]!r}")
        return int(text)

    def __getitem__(self, key: Any) -> Tensor:
        with safe_open(self.path, framework="numpy") as file:
            tensor: Tensor = file.get_tensor(self.names[key])
        if tensor.dtype == np.float32 and not kernels.largest_magnitude(tensor.reshape(-1)) < np.inf:
            raise ValueError(f"{self.names[key][:60]!r} holds values that are not finite")
        return tensor

    def __iter__(self) -> Iterator[Any]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def _checksum(facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> int:
    checksum = zlib.crc32(json.dumps(facts, sort_keys=True).encode())
    for name in sorted(tensors):
        checksum = zlib.crc32(np.ascontiguousarray(tensors[name]).data.cast("B"), zlib.crc32(name.encode(), checksum))
    return checksum

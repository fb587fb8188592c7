"""Vectors in a safetensors file: written so that a crash leaves the old file or the new one, read with a checksum."""

import json
import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

Tensor = NDArray[Any]
Facts = dict[str, Any]

DAMAGED = (SafetensorError, KeyError, TypeError, ValueError)
"""What `read` raises of a file that is not whole; an `OSError` says nothing about the file."""

TYPES = {"float32": ("F32", "<f4"), "uint8": ("U8", "|u1")}


def write(path: Path, tensors: Mapping[str, Tensor], facts: Facts | None = None) -> None:
    """A safetensors file with `facts` and a checksum over all, flushed to disk; an `OSError` leaves no half file.

    Written tensor by tensor, since the library's own writer copies all of them.
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
    try:
        with path.open("wb") as stream:
            stream.write(len(text).to_bytes(8, "little") + text)
            for tensor in tensors.values():
                stream.write(np.ascontiguousarray(tensor, TYPES[str(tensor.dtype)][1]).data)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise


def replace(path: Path, tensors: Mapping[str, Tensor], facts: Facts) -> None:
    """Writes beside `path` and renames: at any instant, `path` is the old file or the whole new one."""
    beside = path.with_name(f"{path.name}.part")  # one writer at a time: what a killed one left is overwritten
    write(beside, tensors, facts)
    os.replace(beside, path)
    sync_directory(path.parent)


def read(path: Path) -> tuple[Facts, "Tensors"]:
    """The facts and the tensors of a file that `write` wrote whole; anything else raises one of `DAMAGED`."""
    with safe_open(path, framework="numpy") as file:
        facts = json.loads((file.metadata() or {})["gammafl"])
    checksum = facts.pop("checksum")
    tensors = Tensors(path)
    if _checksum(facts, tensors) != checksum:
        raise ValueError("its checksum differs")
    return facts, tensors


class Tensors(Mapping[Any, Tensor]):
    """A file's tensors, each read when it is asked for; those with a `prefix` by the number after it."""

    def __init__(self, path: Path, prefix: str = "") -> None:
        self.path = path
        self.prefix = prefix
        with safe_open(path, framework="numpy") as file:
            self.names = {self._key(name): name for name in file.keys() if name.startswith(prefix)}  # noqa: SIM118

    def _key(self, name: str) -> Any:
        return int(name.removeprefix(self.prefix)) if self.prefix else name

    def __getitem__(self, key: Any) -> Tensor:
        with safe_open(self.path, framework="numpy") as file:
            return file.get_tensor(self.names[key])

    def __iter__(self) -> Iterator[Any]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def sync_directory(directory: Path) -> None:
    """Renames in `directory` are on disk."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _checksum(facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> int:
    checksum = zlib.crc32(json.dumps(facts, sort_keys=True).encode())
    for name in sorted(tensors):
        checksum = zlib.crc32(np.ascontiguousarray(tensors[name]).data.cast("B"), zlib.crc32(name.encode(), checksum))
    return checksum

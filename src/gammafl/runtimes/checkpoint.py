"""Checkpoints: the whole state of a run after a round, in one safetensors file with a checksum.

A new checkpoint is written beside the old one, flushed to disk, and renamed; the one before it is kept. So
at any moment at least one whole checkpoint is there, whatever happens to the process or the machine.
"""

import json
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from gammafl.core.errors import InputError
from gammafl.core.kernels import Vector
from gammafl.federated.server import ServerState, Totals
from gammafl.tasks.data.catalogue import Say

LAST, PREVIOUS = "last.safetensors", "previous.safetensors"
RESIDUAL = "residual."


@dataclass(frozen=True)
class Saved:
    """A state, the clients' residuals, and how far the ledger had come when they were saved."""

    state: ServerState
    residuals: Mapping[int, Vector]
    ledger_bytes: int = 0
    wall_seconds: float = 0.0
    phase_seconds: Mapping[str, float] = field(default_factory=dict)
    fingerprint: int | None = None


def save(directory: Path, saved: Saved) -> None:
    """Writes `saved` so that a crash at any instant leaves it or the one before."""
    directory.mkdir(exist_ok=True)
    state = saved.state
    tensors = {"model": state.model}
    if state.average is not None:
        tensors["average"] = state.average
    tensors |= {f"{RESIDUAL}{client}": residual for client, residual in saved.residuals.items()}
    facts: dict[str, Any] = {
        "round": state.round,
        "averaged_rounds": state.averaged_rounds,
        "totals": asdict(state.totals),
        "ledger_bytes": saved.ledger_bytes,
        "wall_seconds": saved.wall_seconds,
        "phase_seconds": dict(saved.phase_seconds),
        "fingerprint": saved.fingerprint,
    }
    facts["checksum"] = _checksum(facts, tensors)
    write_tensors(directory / "writing.safetensors", tensors, {"gammafl": json.dumps(facts)})
    if (directory / LAST).exists():
        os.replace(directory / LAST, directory / PREVIOUS)
    os.replace(directory / "writing.safetensors", directory / LAST)
    _sync_directory(directory)


def write_tensors(path: Path, tensors: dict[str, Vector], metadata: dict[str, str] | None = None) -> None:
    """A safetensors file, flushed to disk; written tensor by tensor, since the library's own writer copies all."""
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.nbytes
        header[name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    try:
        with path.open("wb") as stream:
            stream.write(len(text).to_bytes(8, "little") + text)
            for tensor in tensors.values():
                stream.write(np.ascontiguousarray(tensor, "<f4").data)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise InputError(f"can't write {path} ({error}); make room, then go on with --resume") from None


def load(directory: Path, say: Say) -> Saved | None:
    """The newest whole checkpoint; None where there is none at all."""
    present = [path for name in (LAST, PREVIOUS) if (path := directory / name).exists()]
    for path in present:
        try:
            return _read(path)
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            say(f"checkpoint {path} can't be used ({error}); looking for the one before")
    if present:
        raise InputError(f"no checkpoint in {directory} is whole; remove the directory to start the run anew")
    return None


def _read(path: Path) -> Saved:
    with safe_open(path, framework="numpy") as file:
        facts = json.loads((file.metadata() or {})["gammafl"])
    checksum = facts.pop("checksum")
    tensors = _Tensors(path)
    if _checksum(facts, tensors) != checksum:
        raise ValueError("its checksum differs")
    state = ServerState(
        model=tensors["model"],
        round=facts["round"],
        average=tensors.get("average"),
        averaged_rounds=facts["averaged_rounds"],
        totals=Totals(**facts["totals"]),
    )
    residuals = _Tensors(path, RESIDUAL)
    times = facts["wall_seconds"], facts["phase_seconds"]
    return Saved(state, residuals, facts["ledger_bytes"], *times, facts["fingerprint"])


class _Tensors(Mapping[Any, Vector]):
    """A checkpoint's tensors, each read when it is asked for; those with a `prefix` by the number after it."""

    def __init__(self, path: Path, prefix: str = "") -> None:
        self.path = path
        self.prefix = prefix
        with safe_open(path, framework="numpy") as file:
            self.names = {self._key(name): name for name in file.keys() if name.startswith(prefix)}  # noqa: SIM118

    def _key(self, name: str) -> Any:
        return int(name.removeprefix(self.prefix)) if self.prefix else name

    def __getitem__(self, key: Any) -> Vector:
        with safe_open(self.path, framework="numpy") as file:
            return file.get_tensor(self.names[key])

    def __iter__(self) -> Iterator[Any]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def _checksum(facts: Mapping[str, Any], tensors: Mapping[str, Vector]) -> int:
    checksum = zlib.crc32(json.dumps(facts, sort_keys=True).encode())
    for name in sorted(tensors):
        checksum = zlib.crc32(np.ascontiguousarray(tensors[name]).data.cast("B"), zlib.crc32(name.encode(), checksum))
    return checksum


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

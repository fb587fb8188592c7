"""Checkpoints: the whole state of a run after a round, in one safetensors file with a checksum.

A new checkpoint is written beside the old one, flushed to disk, and renamed; the one before it is kept. So
at any moment at least one whole checkpoint is there, whatever happens to the process or the machine.
"""

import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

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


def save(directory: Path, saved: Saved) -> None:
    """Writes `saved` so that a crash at any instant leaves it or the one before."""
    directory.mkdir(exist_ok=True)
    state = saved.state
    tensors = {"model": state.model}
    if state.average is not None:
        tensors["average"] = state.average
    tensors |= {f"{RESIDUAL}{client}": residual for client, residual in saved.residuals.items()}
    facts = {
        "round": state.round,
        "averaged_rounds": state.averaged_rounds,
        "totals": asdict(state.totals),
        "ledger_bytes": saved.ledger_bytes,
        "wall_seconds": saved.wall_seconds,
        "checksum": _checksum(tensors),
    }
    write_tensors(directory / "writing.safetensors", tensors, {"gammafl": json.dumps(facts)})
    if (directory / LAST).exists():
        os.replace(directory / LAST, directory / PREVIOUS)
    os.replace(directory / "writing.safetensors", directory / LAST)
    _sync_directory(directory)


def write_tensors(path: Path, tensors: dict[str, Vector], metadata: dict[str, str] | None = None) -> None:
    """A safetensors file, flushed to disk."""
    try:
        save_file(tensors, path, metadata)
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
    except (SafetensorError, OSError) as error:
        path.unlink(missing_ok=True)
        raise InputError(f"can't write {path} ({error}); make room, then go on with --resume") from None


def load(directory: Path, say: Say) -> Saved | None:
    """The newest whole checkpoint; None where there is none at all."""
    present = [path for name in (LAST, PREVIOUS) if (path := directory / name).exists()]
    for path in present:
        try:
            return _read(path)
        except (SafetensorError, OSError, KeyError, ValueError) as error:
            say(f"checkpoint {path} can't be used ({error}); looking for the one before")
    if present:
        raise InputError(f"no checkpoint in {directory} is whole; remove the directory to start the run anew")
    return None


def _read(path: Path) -> Saved:
    with safe_open(path, framework="numpy") as file:
        facts = json.loads(file.metadata()["gammafl"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if _checksum(tensors) != facts["checksum"]:
        raise ValueError("its checksum differs")
    state = ServerState(
        model=tensors["model"],
        round=facts["round"],
        average=tensors.get("average"),
        averaged_rounds=facts["averaged_rounds"],
        totals=Totals(**facts["totals"]),
    )
    residuals = {int(k.removeprefix(RESIDUAL)): v for k, v in tensors.items() if k.startswith(RESIDUAL)}
    return Saved(state, residuals, facts["ledger_bytes"], facts["wall_seconds"])


def _checksum(tensors: Mapping[str, Vector]) -> int:
    checksum = 0
    for name in sorted(tensors):
        checksum = zlib.crc32(np.ascontiguousarray(tensors[name]).data.cast("B"), zlib.crc32(name.encode(), checksum))
    return checksum


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

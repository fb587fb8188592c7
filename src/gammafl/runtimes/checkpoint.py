"""Checkpoints: the whole state of a run after a round, in one safetensors file with a checksum.

A new checkpoint is written beside the old one, flushed to disk, and renamed; the one before it is kept. So
at any moment at least one whole checkpoint is there, whatever happens to the process or the machine.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gammafl.core.errors import InputError
from gammafl.core.kernels import Vector
from gammafl.core.sparse import SparseUpdate
from gammafl.core.wire import decode, encode
from gammafl.federated.server import ServerState, Totals
from gammafl.runtimes import tensor_files
from gammafl.runtimes.storing import storing
from gammafl.runtimes.tensor_files import Tensors
from gammafl.tasks.data.catalogue import Say

LAST, PREVIOUS, DAMAGED = "last.safetensors", "previous.safetensors", "damaged.safetensors"
RESIDUAL, LOST = "residual.", "lost."


@dataclass(frozen=True)
class Saved:
    """A state, the clients' residuals and lost uploads, and how far the ledger had come when they were saved."""

    state: ServerState
    residuals: Mapping[int, Vector]
    ledger_bytes: int = 0
    wall_seconds: float = 0.0
    phase_seconds: Mapping[str, float] = field(default_factory=dict)
    fingerprint: int | None = None
    lost: Mapping[int, SparseUpdate] = field(default_factory=dict)


def save(directory: Path, saved: Saved) -> None:
    """Writes `saved` so that a crash at any instant leaves it or the one before."""
    with storing(directory):
        directory.mkdir(exist_ok=True)
    state = saved.state
    tensors = {"model": state.model}
    if state.average is not None:
        tensors["average"] = state.average
    tensors |= {f"{RESIDUAL}{client}": residual for client, residual in saved.residuals.items()}
    tensors |= {f"{LOST}{client}": np.frombuffer(encode(upload), np.uint8) for client, upload in saved.lost.items()}
    facts: dict[str, Any] = {
        "round": state.round,
        "averaged_rounds": state.averaged_rounds,
        "totals": asdict(state.totals),
        "ledger_bytes": saved.ledger_bytes,
        "wall_seconds": saved.wall_seconds,
        "phase_seconds": dict(saved.phase_seconds),
        "fingerprint": saved.fingerprint,
    }
    write(directory / "writing.safetensors", tensors, facts)
    with storing(directory):
        if (directory / LAST).exists():
            os.replace(directory / LAST, directory / PREVIOUS)
        os.replace(directory / "writing.safetensors", directory / LAST)
        tensor_files.sync_directory(directory)


def write(path: Path, tensors: Mapping[str, Vector], facts: dict[str, Any] | None = None) -> None:
    """`tensor_files.write`, with advice where the disk is full."""
    with storing(path):
        tensor_files.write(path, tensors, facts)


def load(directory: Path, say: Say) -> Saved | None:
    """The newest whole checkpoint; None where there is none at all.

    A damaged last one is put aside, or the next `save` would put it into the place of the whole one before it.
    """
    present = [path for name in (LAST, PREVIOUS) if (path := directory / name).exists()]
    for path in present:
        try:
            saved = _read(path)
        except (*tensor_files.DAMAGED, OSError) as error:
            say(f"checkpoint {path} can't be used ({error}); looking for the one before")
            continue
        if path != present[0]:
            with storing(directory):
                os.replace(present[0], directory / DAMAGED)
        return saved
    if present:
        raise InputError(f"no checkpoint in {directory} is whole; remove the directory to start the run anew")
    return None


def fits(saved: Saved, dim: int) -> bool:
    """Whether it is of a model of `dim` elements: a checksum says that a file is whole, not that it belongs here."""
    state, residuals = saved.state, saved.residuals
    vectors = (v for v in (state.model, state.average, *(residuals[client] for client in residuals)) if v is not None)
    whole = all(vector.shape == (dim,) and vector.dtype == np.float32 for vector in vectors)
    return whole and all(update.dim == dim for update in saved.lost.values())


def _read(path: Path) -> Saved:
    facts, tensors = tensor_files.read(path)
    state = ServerState(
        model=tensors["model"],
        round=facts["round"],
        average=tensors.get("average"),
        averaged_rounds=facts["averaged_rounds"],
        totals=Totals(**facts["totals"]),
    )
    uploads = Tensors(path, LOST)
    return Saved(
        state=state,
        residuals=Tensors(path, RESIDUAL),
        ledger_bytes=facts["ledger_bytes"],
        wall_seconds=facts["wall_seconds"],
        phase_seconds=facts["phase_seconds"],
        fingerprint=facts["fingerprint"],
        lost={client: decode(uploads[client].tobytes()) for client in uploads},
    )

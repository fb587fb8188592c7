"""What a client keeps on its disk, so that a restart loses nothing: residual, open upload, and the model it holds."""

import fcntl
import logging
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from flwr.app import Context

from gammafl.core.compressors import Compressor
from gammafl.core.description import describe
from gammafl.core.error_feedback import ErrorFeedback
from gammafl.core.errors import InputError
from gammafl.core.kernels import Vector
from gammafl.federated.client import Outbox
from gammafl.runtimes import tensor_files
from gammafl.runtimes.flower.layout import Layout

LOG = logging.getLogger("flwr")
"""Flower's own, so that what we say is where an operator looks."""


def state_directory() -> Path:
    """$GAMMAFL_STATE, or gammafl in the user's directory for state."""
    if own := os.environ.get("GAMMAFL_STATE"):
        return Path(own)
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "gammafl"


def client_name(context: Context) -> str:
    """The partition of the SuperNode, which outlives restarts; without one its node id, which authentication keeps."""
    return str(context.node_config.get("partition-id", f"node-{context.node_id}"))


class ClientDisk:
    """The files of one client in one run: DIRECTORY/RUN/NAME.state and NAME.model."""

    def __init__(self, directory: Path, context: Context) -> None:
        self.name = client_name(context)
        folder = directory / f"run-{context.run_id}"
        stem = re.sub(r"[^\w.-]", "_", self.name)
        self.state_file = folder / f"{stem}.state"
        self.model_file = folder / f"{stem}.model"
        self.lock_file = folder / f"{stem}.lock"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """For this process alone; waits for another that still trains, as one that outlived its SuperNode."""
        try:
            self.lock_file.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.lock_file, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise InputError(
                f"can't store the client's state in {self.lock_file.parent} ({error.strerror});"
                " name another directory: compress(state_dir=…) or $GAMMAFL_STATE"
            ) from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def load(self, method: Compressor, dim: int) -> "ClientState":
        """The stored state; a new one where there is none, or none that can be used."""
        if self.state_file.exists():
            try:
                return _read(self.state_file, method, dim)
            except (*tensor_files.DAMAGED, InputError) as error:
                aside = self.state_file.with_suffix(".damaged")
                os.replace(self.state_file, aside)
                LOG.warning("gammafl: %s can't be used (%s); moved to %s", self.state_file, error, aside.name)
        return ClientState(Outbox(ErrorFeedback(method, dim)), secrets.token_hex(8))

    def save(self, state: "ClientState", method: Compressor) -> None:
        outbox = state.outbox
        tensors = {"residual": outbox.memory.residual}
        if outbox.open is not None:
            tensors["open"] = np.frombuffer(outbox.open, np.uint8)
        facts = {
            "incarnation": state.incarnation,
            "number": outbox.number,
            "round": state.round,
            "address": state.address,
            "method": describe(method),
        }
        _store(self.state_file, tensors, facts)

    def load_model(self, version: int) -> tuple[Vector, Layout] | None:
        """The stored model if it is of that version."""
        try:
            facts, tensors = tensor_files.read(self.model_file)
            model, layout = np.array(tensors["model"]), Layout.from_facts(facts["layout"])
        except tensor_files.DAMAGED as error:
            LOG.info("gammafl: no stored model to build on (%s)", error)
            return None
        return (model, layout) if facts["version"] == version else None

    def save_model(self, model: Vector, layout: Layout, version: int) -> None:
        _store(self.model_file, {"model": model}, {"version": version, "layout": layout.facts()})


SEVERAL = 0
"""The address of an upload that was sent from more than one."""


@dataclass
class ClientState:
    """An outbox, and whose it is."""

    outbox: Outbox
    incarnation: str
    """A random word: the numbers of the outbox belong to it."""

    round: int = 0
    """Of the last upload; 0 before the first."""

    address: int = SEVERAL
    """The node id under which the last upload was sent."""


def _read(path: Path, method: Compressor, dim: int) -> ClientState:
    facts, tensors = tensor_files.read(path)
    if facts["method"] != describe(method):
        raise InputError("it is of another method")
    residual = np.array(tensors["residual"], np.float32)
    payload = tensors["open"].tobytes() if "open" in tensors else None
    outbox = Outbox(ErrorFeedback(method, dim, residual), facts["number"], payload)
    return ClientState(outbox, facts["incarnation"], facts["round"], facts["address"])


def _store(path: Path, tensors: dict[str, np.ndarray], facts: tensor_files.Facts) -> None:
    try:
        tensor_files.replace(path, tensors, facts)
    except OSError as error:
        raise InputError(f"can't store the client's state in {path} ({error.strerror}); make room") from None

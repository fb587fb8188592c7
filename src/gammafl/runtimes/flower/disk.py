"""What a client keeps on its disk, so that a restart loses nothing: residual, open upload, and the model it holds."""

import fcntl
import logging
import os
import re
import secrets
import shutil
import time
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
from gammafl.runtimes.storing import storing

LOG = logging.getLogger("flwr")
"""Flower's own, so that what we say is where an operator looks."""

LOCK_SECONDS = 0.2
"""Between two looks at a lock that another process holds."""

SPARE_BYTES = 1 << 20
FIXED = "fixed."
ELSEWHERE = "name another directory: compress(state_dir=…) or $GAMMAFL_STATE"


def state_directory() -> Path:
    """$GAMMAFL_STATE, or gammafl in the user's directory for state."""
    if own := os.environ.get("GAMMAFL_STATE"):
        return Path(own)
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "gammafl"


def client_name(context: Context) -> str:
    """The partition of the SuperNode, which outlives restarts; without one its node id, which authentication keeps."""
    name = str(context.node_config.get("partition-id", f"node-{context.node_id}"))
    if not re.fullmatch(r"[\w.:-]{1,100}", name):
        raise InputError(f"partition-id must be of letters and digits, 100 at the most; got {name[:120]!r}")
    return name


class ClientDisk:
    """The files of one client in one run: DIRECTORY/RUN/NAME.state and NAME.model."""

    def __init__(self, directory: Path, context: Context) -> None:
        self.name = client_name(context)
        folder = directory / f"run-{context.run_id}"
        self.state_file = folder / f"{self.name}.state"
        self.model_file = folder / f"{self.name}.model"
        self.lock_file = folder / f"{self.name}.lock"

    @contextmanager
    def locked(self, seconds: float) -> Iterator[None]:
        """For this process alone; waits so long for another that still trains, as one that outlived its SuperNode."""
        with storing(self.lock_file.parent, "it takes part", ELSEWHERE):
            self.lock_file.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.lock_file, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            self._lock(handle, time.monotonic() + seconds)
            yield
        finally:
            os.close(handle)

    def _lock(self, handle: int, deadline: float) -> None:
        waiting = False
        while True:
            try:
                return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not waiting:
                    LOG.warning("gammafl: another process trains as client %s; waiting for it", self.name)
                    waiting = True
            if time.monotonic() > deadline:
                raise InputError(f"another process still trains as client {self.name}; end it, or wait for it")
            time.sleep(LOCK_SECONDS)

    def check_room(self, dim: int) -> None:
        """Before training, since an update that can't be stored is lost."""
        free, needed = shutil.disk_usage(self.state_file.parent).free, 2 * 4 * dim + SPARE_BYTES
        if free < needed:
            raise InputError(
                f"{self.state_file.parent} has {free} bytes left and {needed} are needed; make room: until then this"
                " client does not train"
            )

    def load(self, method: Compressor, dim: int, training: str) -> "ClientState":
        """The stored state; a new one where there is none of this training, or none that can be used."""
        try:
            if self.state_file.exists() and (state := _read(self.state_file, method, dim, training)):
                return state
        except OSError as error:
            raise InputError(f"can't read {self.state_file} ({error}); this client does not train") from None
        except (*tensor_files.DAMAGED, InputError) as error:
            aside = self.state_file.with_suffix(f".damaged-{secrets.token_hex(2)}")
            os.replace(self.state_file, aside)
            LOG.warning("gammafl: %s can't be used (%s); moved to %s", self.state_file, error, aside.name)
        return new_state(method, dim, training)

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
            "training": state.training,
            "method": describe(method),
        }
        with storing(self.state_file, "it takes part again; what it trained in this round is lost", ELSEWHERE):
            tensor_files.replace(self.state_file, tensors, facts)

    def load_model(self, least: int, most: int) -> tuple[Vector, Layout] | None:
        """The stored model if it is of a version from `least` to `most`."""
        try:
            facts, tensors = tensor_files.read(self.model_file)
            data = {name: tensors[f"{FIXED}{name}"].tobytes() for name in facts["layout"]["fixed"]}
            model, layout = np.array(tensors["model"]), Layout.from_facts(facts["layout"], data)
        except (*tensor_files.DAMAGED, OSError) as error:
            LOG.info("gammafl: no stored model to build on (%s)", error)
            return None
        return (model, layout) if least <= facts["version"] <= most else None

    def save_model(self, model: Vector, layout: Layout, version: int) -> None:
        fixed = {f"{FIXED}{name}": np.frombuffer(array.data, np.uint8) for name, array in layout.fixed.items()}
        facts = {"version": version, "layout": layout.facts()}
        with storing(self.model_file, "it takes part again", ELSEWHERE):
            tensor_files.replace(self.model_file, {"model": model, **fixed}, facts)


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

    training: str = ""
    """The training that all this belongs to."""


def new_state(method: Compressor, dim: int, training: str) -> ClientState:
    return ClientState(Outbox(ErrorFeedback(method, dim)), secrets.token_hex(8), training=training)


def _read(path: Path, method: Compressor, dim: int, training: str) -> ClientState | None:
    """None if it is of another training."""
    facts, tensors = tensor_files.read(path)
    if facts["training"] != training:
        return None
    if facts["method"] != describe(method):
        raise InputError("it is of another method")
    residual = np.array(tensors["residual"], np.float32)
    payload = tensors["open"].tobytes() if "open" in tensors else None
    outbox = Outbox(ErrorFeedback(method, dim, residual), facts["number"], payload)
    return ClientState(outbox, facts["incarnation"], facts["round"], facts["address"], facts["training"])

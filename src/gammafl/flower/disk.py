"""A client's files: its residual, its open upload, and the model that it holds. A restart loses none of them."""

import logging
import os
import re
import secrets
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
from flwr.app import Context, RecordDict

from gammafl import seeds
from gammafl.core import halved
from gammafl.core.arrays import Vector
from gammafl.core.errors import InputError
from gammafl.core.memory import RESIDUAL, NoMemory
from gammafl.core.method import Method
from gammafl.federated.exchange import ClientFacts, ClientState
from gammafl.files import locks, private_files, tensor_files
from gammafl.files.disk_errors import storing
from gammafl.files.reading import Count, Facts, checked, is_there
from gammafl.files.tensor_files import BYTES, FLOATS, Kind
from gammafl.flower.layout import Layout, LayoutFacts
from gammafl.flower.packing import Packer, unpack
from gammafl.flower.states import folder_of
from gammafl.methods.description import describe

LOG = logging.getLogger("flwr")
"""Flower's own logger: an operator looks there."""

FORMAT = 2
"""The version of the format of a client's state."""

HALVES = "residual-bf16"
Residuals = Literal["f32", "bf16"]
"""How residuals are stored."""

SPARE_BYTES = 1 << 20
FIXED, REPLY = "fixed.", "reply."
Reply = tuple[str, RecordDict]
"""The key under which a reply holds the upload, and the content of the reply."""

ELSEWHERE = "name another directory: compress(state_dir=…) or $GAMMAFL_STATE"


def client_name(context: Context) -> str:
    """The SuperNode's partition id, which stays the same over restarts.

    Without one, its node id, which stays the same only with authentication.
    """
    name = str(context.node_config.get("partition-id", f"node-{context.node_id}"))
    if not re.fullmatch(r"[A-Za-z0-9_:-][A-Za-z0-9_.:-]{0,99}", name):
        raise InputError(
            "partition-id must be a name of at most 100 characters: A to Z, a to z, 0 to 9, _ . : -, no dot first;"
            f" got {name[:120]!r}"
        )
    return name


class ClientDisk:
    """The files of one client in one training: DIRECTORY/training-NAME/CLIENT.state and CLIENT.model.

    Only its owner can read a training's folder, also one that existed before. DIRECTORY too, if it is created here;
    the permissions of an existing DIRECTORY do not change.
    """

    def __init__(self, directory: Path, context: Context, training: str, residuals: Residuals = "f32") -> None:
        self.name, self.residuals = client_name(context), residuals
        folder = folder_of(directory, training)
        self.is_new = not folder.exists()
        self.state_file = folder / f"{self.name}.state"
        self.model_file = folder / f"{self.name}.model"
        self.lock_file = folder / f"{self.name}.lock"

    @contextmanager
    def locked(self, seconds: float) -> Iterator[None]:
        """While it lasts, no other process can use this client's files.

        It waits at most `seconds` for another process, such as one that still trains after its SuperNode died.
        """
        with storing(self.lock_file.parent, "it takes part", ELSEWHERE):
            private_files.make_directory(self.lock_file.parent)
            lock = locks.take(
                self.lock_file,
                f"another process still trains as client {self.name}; end it, or wait for it",
                seconds,
                lambda: LOG.warning("gammafl: another process trains as client %s; waiting for it", self.name),
            )
        with lock:
            yield

    def forget(self, seconds: float) -> None:
        """Removes this client's files after the end of the training, and the folder if it is empty then."""
        with self.locked(seconds), storing(self.state_file, "it is removed", ELSEWHERE):
            self.state_file.unlink(missing_ok=True)
            self.model_file.unlink(missing_ok=True)
        with suppress(OSError):  # other clients' files are still there
            self.lock_file.unlink()
            self.lock_file.parent.rmdir()

    def check_room(self, dim: int, vectors: int) -> None:
        """Checks the free space before the training, since an update that can't be stored is lost.

        vectors   how many vectors of `dim` elements the method's memory has
        """
        free, needed = shutil.disk_usage(self.state_file.parent).free, (vectors + 1) * 4 * dim + SPARE_BYTES
        if free < needed:
            raise InputError(
                f"{self.state_file.parent} has {free} bytes left and {needed} are needed; make room: until then this"
                " client does not train"
            )

    def load(self, method: Method, dim: int, training: str) -> ClientState:
        """The stored state; a new one if this training has none, or if the stored one can't be used."""
        try:
            if is_there(self.state_file) and (state := _read(self.state_file, method, dim, training)):
                return state
        except OSError as error:
            raise InputError(f"can't read {self.state_file} ({error}); this client does not train") from None
        except tensor_files.DAMAGED as error:
            aside = self.state_file.with_suffix(f".damaged-{secrets.token_hex(2)}")
            with storing(self.state_file, "it takes part again", ELSEWHERE):
                os.replace(self.state_file, aside)
            LOG.warning("gammafl: %s can't be used (%s); moved to %s", self.state_file, error, aside.name)
        return ClientState.new(method, dim, training)

    def save(self, state: ClientState, method: Method, reply: Reply | None = None) -> None:
        """Stores the state.

        reply   the reply that carries the open upload, if the server may ask for it again; stored without the upload
        """
        outbox, packer = state.outbox, Packer()
        tensors: dict[str, Any] = dict(outbox.memory.state())
        if self.residuals == "bf16" and RESIDUAL in tensors:
            # seeded by the upload, which differs between clients: a repeated training rounds the same way
            rng = seeds.generator(zlib.crc32(outbox.open or b""), "residual", state.round)
            halved.round_by_chance(tensors[RESIDUAL], rng)  # in place: the client goes on with what it stored
            tensors[HALVES] = halved.to_halves(tensors.pop(RESIDUAL))
        if outbox.open is not None:
            tensors["open"] = np.frombuffer(outbox.open, np.uint8)
        facts = {"format": FORMAT, **ClientFacts.of(state, describe(method))}
        if reply is not None:
            facts["reply"] = packer.pack(list(reply))
            tensors |= {f"{REPLY}{name}": tensor for name, tensor in packer.tensors.items()}
        with storing(self.state_file, "it takes part again; its training of this round is lost", ELSEWHERE):
            tensor_files.replace(self.state_file, tensors, facts)

    def load_reply(self) -> Reply | None:
        """The reply that carried the open upload, without the upload. None if it was not stored."""
        raw, tensors = tensor_files.read(self.state_file)
        if raw.get("reply") is None:
            return None
        named = {name.removeprefix(REPLY): name for name in tensors if name.startswith(REPLY)}
        try:
            key, content = unpack(raw["reply"], {number: tensors[name] for number, name in named.items()})
        except (*tensor_files.DAMAGED, AttributeError) as error:
            raise InputError(f"{self.state_file} holds a reply that can't be read ({error})") from None
        return key, content

    def load_model(self, least: int, most: int) -> tuple[int, Vector, Layout] | None:
        """The version, the stored model and its layout. None if the version is not from `least` to `most`."""
        try:
            version, model, layout = _read_model(self.model_file)
        except (*tensor_files.DAMAGED, OSError) as error:
            LOG.info("gammafl: the stored model can't be used (%s)", error)
            return None
        return (version, model, layout) if least <= version <= most else None

    def save_model(self, model: Vector, layout: Layout, version: int) -> None:
        fixed = {f"{FIXED}{name}": np.frombuffer(array.data, np.uint8) for name, array in layout.fixed.items()}
        facts = {"version": version, "layout": layout.facts()}
        with storing(self.model_file, "it takes part again", ELSEWHERE):
            tensor_files.replace(self.model_file, {"model": model, **fixed}, facts)


class StateFacts(ClientFacts):
    """What CLIENT.state holds in addition to its tensors."""

    format: Literal[2]
    address: int
    reply: Any = None


class ModelFacts(Facts):
    """What CLIENT.model holds in addition to its tensors."""

    version: Count
    layout: LayoutFacts


def _read(path: Path, method: Method, dim: int, training: str) -> ClientState | None:
    """The stored state; None if it belongs to another training."""
    raw, tensors = tensor_files.read(path)
    if raw.get("format") != FORMAT:
        raise ValueError("another version of gammafl wrote it: upgrade between runs, not within one")
    facts = checked(StateFacts, raw)
    if facts.training != training:
        return None
    if facts.method != describe(method):
        raise ValueError("it belongs to another method")
    keeps_a_rest = method.leaves_a_rest and not isinstance(method.memory, NoMemory)
    remembers = keeps_a_rest or RESIDUAL in tensors or HALVES in tensors
    wanted = dict.fromkeys(method.memory.vectors, Kind(FLOATS, (dim,))) if remembers else {}
    vectors = {name: np.array(tensors[name]) for name in wanted if name in tensors}
    if HALVES in tensors:
        del wanted[RESIDUAL]
        wanted[HALVES] = Kind(BYTES, (2 * dim,))
        if tensors.kinds[HALVES] == wanted[HALVES]:
            vectors[RESIDUAL] = halved.from_halves(tensors[HALVES])
    if "open" in tensors:
        wanted["open"] = Kind(BYTES, tensors.kinds["open"].shape)
    wanted |= {name: Kind(BYTES, kind.shape) for name, kind in tensors.kinds.items() if name.startswith(REPLY)}
    if tensors.kinds != wanted:
        raise ValueError(f"its tensors are not those of a client with {dim} elements")
    payload = tensors["open"].tobytes() if "open" in tensors else None
    return ClientState.restored(method, dim, facts, vectors, payload)


def _read_model(path: Path) -> tuple[int, Vector, Layout]:
    """(version, model, layout)."""
    raw, tensors = tensor_files.read(path)
    facts = checked(ModelFacts, raw)
    data = {name: tensors[f"{FIXED}{name}"].tobytes() for name in facts.layout.fixed}
    layout = Layout.from_facts(facts.layout, data)
    if tensors.kinds["model"] != Kind(FLOATS, (layout.dim,)):
        raise ValueError(f"its model does not have the {layout.dim} elements of its layout")
    return facts.version, np.array(tensors["model"]), layout

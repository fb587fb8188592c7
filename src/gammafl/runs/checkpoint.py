"""Checkpoints: the whole state of a run after a round, in one safetensors file with a checksum.

A new checkpoint is written beside the old one, flushed to disk and renamed, and the previous one is kept. So there is
always at least one whole checkpoint, whatever happens to the process or the machine. Checkpoints hold the clients'
residuals, so only their owner can read them.
"""

import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from gammafl.core import memory as core_memory
from gammafl.core.arrays import Vector
from gammafl.core.errors import InputError
from gammafl.core.momentum import VELOCITY
from gammafl.core.shifts import SHIFT, Mirror
from gammafl.core.sparse import SparseUpdate
from gammafl.core.wire import decode, encode
from gammafl.federated.budget import Pace
from gammafl.federated.downlink import BROADCAST, CHANGED_AT, VIEW, ViewFacts, ViewState
from gammafl.federated.health import HealthState
from gammafl.federated.level import Controller, LevelState
from gammafl.federated.norms import LearntNorm, NormsState
from gammafl.federated.plan import Plan
from gammafl.federated.server import ServerState, Totals
from gammafl.federated.server_optimizers import MOMENTS, remembered
from gammafl.files import private_files, tensor_files
from gammafl.files.disk_errors import storing
from gammafl.files.reading import Count, Facts, checked, is_there, require_regular
from gammafl.files.tensor_files import BYTES, FLOATS, Kind, Tensor, Tensors
from gammafl.tasks.data.catalogue import Say

LAST, PREVIOUS = "last.safetensors", "previous.safetensors"
RESIDUAL, LOST, MOMENT, MIRROR = "residual.", "lost.", "moment.", "mirror."
CHUNK = 1 << 20

Seconds = Annotated[float, Field(ge=0, le=1e12)]
Size = Annotated[float, Field(ge=0)]
ClientNumber = Annotated[str, Field(pattern="^[0-9]{1,18}$")]


@dataclass(frozen=True)
class Saved:
    """A state, the clients' residuals and lost uploads, and the length of the ledger at that time."""

    state: ServerState
    residuals: Mapping[int, Vector]
    ledger_bytes: int = 0
    wall_seconds: float = 0.0
    phase_seconds: Mapping[str, float] = field(default_factory=dict)
    fingerprint: int | None = None
    lost: Mapping[int, SparseUpdate] = field(default_factory=dict)
    paces: Mapping[int, Pace] = field(default_factory=dict)
    others: Mapping[str, Mapping[int, Vector]] = field(default_factory=dict)
    """The other vectors that clients remember: name → client → vector."""

    mirror: tuple[Mapping[str, Tensor], Mapping[str, float]] | None = None
    """Vectors and shares of the server's half of the clients' memories, as they are in the file."""


class TotalsFacts(Facts):
    """The totals of all rounds up to a checkpoint."""

    uploads: Count
    kept: Count
    uplink_bytes: Count
    downlink_bytes: Count = 0
    link_seconds: Annotated[float, Field(ge=0)] | None = None


class CheckpointFacts(Facts):
    """What a checkpoint contains besides its tensors."""

    round: Count
    averaged_rounds: Count
    totals: TotalsFacts
    ledger_bytes: Count
    wall_seconds: Seconds
    phase_seconds: dict[str, Seconds]
    fingerprint: int | None
    level: LevelState | None
    health: HealthState
    norms: NormsState | None = None
    down: ViewFacts | None = None
    paces: dict[ClientNumber, Annotated[list[Size], Field(min_length=2, max_length=2)]] = Field({})
    """Client → its `Pace`, if clients have rates."""

    shares: dict[ClientNumber, Size] | None = None
    """Client → its share in the server's half of the clients' memories, if the server has one."""


def save(directory: Path, saved: Saved) -> None:
    """Writes `saved`. A crash at any time leaves this checkpoint or the previous one."""
    with storing(directory):
        private_files.make_directory(directory)
    state = saved.state
    tensors = {"model": state.model}
    if state.average is not None:
        tensors["average"] = state.average
    tensors |= {f"{MOMENT}{name}": moment for name, moment in state.moments.items()}
    tensors |= {f"{RESIDUAL}{client}": residual for client, residual in saved.residuals.items()}
    tensors |= {f"{name}.{client}": vector for name, held in saved.others.items() for client, vector in held.items()}
    if state.mirror is not None:
        tensors |= {f"{MIRROR}{name}": vector for name, vector in state.mirror.vectors().items()}
    tensors |= {f"{LOST}{client}": np.frombuffer(encode(upload), np.uint8) for client, upload in saved.lost.items()}
    if state.down is not None:
        tensors |= state.down.tensors()
    facts: dict[str, Any] = {
        "round": state.round,
        "averaged_rounds": state.averaged_rounds,
        "totals": {name: total for name, total in asdict(state.totals).items() if total is not None},
        "ledger_bytes": saved.ledger_bytes,
        "wall_seconds": saved.wall_seconds,
        "phase_seconds": dict(saved.phase_seconds),
        "fingerprint": saved.fingerprint,
        "level": state.level,
        "health": state.health,
        "norms": state.norms,
        "down": None if state.down is None else state.down.facts(),
    }
    if state.mirror is not None:
        facts["shares"] = state.mirror.shares
    if saved.paces:
        facts["paces"] = {str(client): list(pace) for client, pace in sorted(saved.paces.items())}
    with storing(directory / LAST):
        tensor_files.replace(directory / LAST, tensors, facts, previous=directory / PREVIOUS)


def load(directory: Path, plan: Plan, ledger: Path, say: Say) -> Saved | None:
    """Reads the newest checkpoint from which `plan` and `ledger` can continue. Returns None if there is no checkpoint.

    If the last one is damaged or makes no sense, the previous one is read. A checkpoint that makes sense but has other
    data or another model is an error, because it belongs to another run.

    A last checkpoint that can't be used gets another name. Otherwise the next `save` would replace the previous one,
    which is good, with the damaged one.
    """
    try:
        present = [path for name in (LAST, PREVIOUS) if is_there(path := directory / name)]
    except OSError as error:
        advice = "make it readable, or choose another --out"
        raise InputError(f"can't read {directory} ({error.strerror}); {advice}") from None
    reasons: list[str] = []
    for path in present:
        try:
            saved = _read(path)
            foreign = _foreign(saved, plan)
            if foreign is None:
                _require_sense(saved, plan, ledger)
                saved.state.mirror = _mirror(saved, plan)
        except (*tensor_files.DAMAGED, OSError) as error:
            reasons.append(str(error))
            say(f"checkpoint {path} can't be used ({error}); trying the previous one")
            continue
        if foreign is not None:
            raise InputError(f"the run in {directory.parent} {foreign}")
        if path != present[0]:
            with storing(directory):
                os.replace(present[0], directory / f"damaged-{secrets.token_hex(2)}.safetensors")
        return saved
    if present:
        advice = "remove the directory to start the run from its beginning"
        raise InputError(f"no checkpoint in {directory} can be used (the last one: {reasons[0]}); {advice}")
    return None


def _read(path: Path) -> Saved:
    """Reads a file that is a checkpoint of some run. Any other file raises one of `DAMAGED`."""
    raw, tensors = tensor_files.read(path)
    facts = checked(CheckpointFacts, raw)
    residuals, uploads = Tensors(path, RESIDUAL), Tensors(path, LOST)
    others = {name: held for name in (SHIFT, VELOCITY) if (held := Tensors(path, f"{name}."))}
    _require_kinds(tensors, residuals, uploads, others)
    averaged = "average" in tensors
    if averaged != (facts.averaged_rounds > 0) or facts.averaged_rounds > facts.round:
        raise ValueError(f"it has an average of {facts.averaged_rounds} models after round {facts.round}")
    model = tensors["model"]
    return Saved(
        state=ServerState(
            model=model,
            round=facts.round,
            average=tensors["average"] if averaged else None,
            averaged_rounds=facts.averaged_rounds,
            totals=Totals(**facts.totals.model_dump()),
            moments={name.removeprefix(MOMENT): tensors[name] for name in tensors if name.startswith(MOMENT)},
            level=None if facts.level is None else facts.level.model_dump(),
            health=facts.health.model_dump(),
            norms=None if facts.norms is None else facts.norms.model_dump(),
            down=None if facts.down is None else ViewState.restored(tensors, facts.down),
        ),
        residuals=residuals,
        ledger_bytes=facts.ledger_bytes,
        wall_seconds=facts.wall_seconds,
        phase_seconds=facts.phase_seconds,
        fingerprint=facts.fingerprint,
        lost={client: decode(uploads[client].tobytes(), model.size) for client in uploads},
        paces={int(client): Pace(*pace) for client, pace in facts.paces.items()},
        others=others,
        mirror=None if facts.shares is None else (_mirrored(tensors), facts.shares),
    )


def _mirrored(tensors: Tensors) -> dict[str, Tensor]:
    return {name.removeprefix(MIRROR): tensors[name] for name in tensors if name.startswith(MIRROR)}


def _mirror(saved: Saved, plan: Plan) -> Mirror | None:
    """The server's half of the clients' memories, or a `ValueError`."""
    mirror = plan.method.memory.server(plan.dim, plan.layout.tail)
    if (mirror is None) != (saved.mirror is None):
        raise ValueError("the server's half of its clients' memories is not that of the method")
    if mirror is not None and saved.mirror is not None:
        mirror.restore(*saved.mirror)
    return mirror


def _require_kinds(tensors: Tensors, residuals: Tensors, uploads: Tensors, others: Mapping[str, Tensors]) -> None:
    """Raises a `ValueError` unless every tensor has a known name, and every vector is as long as the model."""
    model = tensors.kinds.get("model", Kind("nothing", ()))
    moments = {f"{MOMENT}{name}" for names in MOMENTS.values() for name in names}
    down = {name for name in tensors if name in (VIEW, CHANGED_AT) or name.startswith(BROADCAST)}
    mirror = {name for name in tensors if name.startswith(MIRROR)}
    clients = [name for held in (residuals, uploads, *others.values()) for name in held.names.values()]
    known = {"model", "average", *down, *moments, *mirror, *clients}
    if model.type != FLOATS or len(model.shape) != 1 or not tensors.keys() <= known:
        raise ValueError("its tensors are not those of a checkpoint")
    few = {name for name in mirror if tensors.kinds[name].type == BYTES}  # shifts that are kept as messages
    no_vectors = (down - {VIEW}) | few
    vectors = [kind for name, kind in tensors.kinds.items() if not name.startswith(LOST) and name not in no_vectors]
    if any(kind != model for kind in vectors) or any(kind.type != BYTES for kind in uploads.kinds.values()):
        raise ValueError("its tensors belong to different models")


def _foreign(saved: Saved, plan: Plan) -> str | None:
    """Says why a checkpoint is not one of `plan`; None if it can be."""
    if saved.fingerprint != plan.task.fingerprint():
        return "began with other data; give it the same --data-dir"
    if saved.state.model.size != plan.dim:
        return "is of another model; choose another --out"
    return None


def _require_sense(saved: Saved, plan: Plan, ledger: Path) -> None:
    """Raises a `ValueError` if a run of `plan` can't have this state, or if `ledger` lacks rounds of it."""
    if saved.state.round > plan.rounds:
        raise ValueError(f"it is of round {saved.state.round} of {plan.rounds}")
    if saved.state.round:  # before that, neither has a state
        Controller(plan.method, plan.dim, plan.schedule, plan.rounds, plan.allowance).restore(saved.state.level)
        LearntNorm(plan.limits).restore(saved.state.norms)
    if (saved.state.down is None) != (plan.downlink == "full"):
        raise ValueError("it has another downlink than the run")
    if saved.state.down is not None and saved.state.down.version > saved.state.round:
        raise ValueError(f"it has version {saved.state.down.version} of its view after round {saved.state.round}")
    if (saved.state.totals.link_seconds is None) == (plan.link is not None and saved.state.round > 0):
        raise ValueError("it has another link than the run")
    vectors = {name for name in plan.method.memory.vectors if name != core_memory.RESIDUAL}
    if any(set(held) != set(saved.residuals) for held in saved.others.values()) or not saved.others.keys() <= vectors:
        raise ValueError("its clients' memories are not those of the method")
    if saved.residuals and vectors != saved.others.keys():
        raise ValueError(f"its clients have no {', '.join(sorted(vectors - saved.others.keys()))}")
    named = (*saved.residuals, *saved.lost, *saved.paces, *_holders(saved.state), *_senders(saved))
    if strangers := [client for client in named if client >= plan.clients]:
        raise ValueError(f"it has client {strangers[0]}, but the run has {plan.clients} clients")
    moments = saved.state.moments
    steps = saved.state.round if plan.privacy else saved.state.totals.uploads
    wrong = set(moments) != set(remembered(plan.server_optimizer, steps))
    if wrong or any((moments[name] < 0).any() for name in moments if name == "squares"):
        raise ValueError(f"its state of the server's optimizer ({', '.join(moments) or 'nothing'}) makes no sense")
    if _whole_lines(ledger, saved.ledger_bytes) != saved.state.round:
        lines = f"its first {saved.ledger_bytes} bytes are not {saved.state.round} rounds"
        raise ValueError(f"{ledger.name} is damaged or belongs to another checkpoint: {lines}")


def _senders(saved: Saved) -> list[int]:
    return [] if saved.mirror is None else [int(sender) for sender in saved.mirror[1]]


def _holders(state: ServerState) -> list[int]:
    return [] if state.down is None else list(state.down.held)


def _whole_lines(path: Path, size: int) -> int | None:
    """How many lines the first `size` bytes of a file are; None if the last one is not whole."""
    require_regular(path)
    lines, last = 0, b"\n"
    with path.open("rb") as stream:
        while size and last:
            part = stream.read(min(size, CHUNK))
            lines, last, size = lines + part.count(b"\n"), part[-1:], size - len(part)
    return lines if last == b"\n" else None

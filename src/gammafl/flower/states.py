"""Directories of the clients' states. A state is removed when its training ends, or when it is old or too large."""

import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from gammafl.core.errors import InputError, require
from gammafl.files import locks

PREFIX = "training-"
NAMED = re.compile(rf"{PREFIX}[0-9a-f]{{16}}")
"""Names of folders with the random word of a server. Other folders, such as training-data, are not gammafl's."""

SUFFIXES = (".state", ".model", ".lock", ".part")
DAMAGED = ".damaged-"
DAY = 86400.0


@dataclass(frozen=True)
class TrainingStates:
    """The states of the clients of one training on this machine."""

    path: Path
    clients: int
    size_bytes: int
    changed: float
    """When a client last wrote into the folder, in seconds since 1970."""

    @property
    def training(self) -> str:
        return self.path.name.removeprefix(PREFIX)


def state_directory() -> Path:
    """$GAMMAFL_STATE, or gammafl in the user's directory for state."""
    if own := os.environ.get("GAMMAFL_STATE"):
        return Path(own)
    return platformdirs.user_state_path("gammafl", appauthor=False)


def simulation_directory() -> Path:
    """Where simulated clients store their states: a temporary directory that only this user can read.

    It is the same for all processes of a simulation, since a client may train in another process each time.
    """
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    path = Path(tempfile.gettempdir()) / f"gammafl-simulation-{user}"
    if path.is_symlink() or (path.exists() and hasattr(os, "getuid") and path.stat().st_uid != os.getuid()):
        raise InputError(f"{path} belongs to another user; name a directory: compress(state_dir=…) or $GAMMAFL_STATE")
    return path


def folder_of(directory: Path, training: str) -> Path:
    """The folder of one training. `training` comes from a server: only letters, digits and _ . : - are accepted."""
    return directory / f"{PREFIX}{training}"


def trainings(directory: Path) -> list[TrainingStates]:
    """All trainings with states in `directory`, the oldest first. What another process removes now is left out."""
    found = []
    for path in directory.glob(f"{PREFIX}*"):
        if NAMED.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
            with suppress(FileNotFoundError):
                facts = [path.stat(), *(file.lstat() for file in _files(path))]
                clients = len(list(path.glob("*.state")))
                changed = max(fact.st_mtime for fact in facts[1:] or facts)
                found.append(TrainingStates(path, clients, sum(fact.st_size for fact in facts[1:]), changed))
    return sorted(found, key=lambda states: states.changed)


def in_use(path: Path) -> bool:
    """Whether a client with its state in the folder `path` trains now."""
    for lock in path.glob("*.lock"):
        try:
            with suppress(OSError), locks.take(lock, f"{lock} is held"):
                pass
        except InputError:
            return True
    return False


def remove(path: Path) -> bool:
    """Removes gammafl's files from the folder of a training, and then the folder, if it has no other files.

    Meanwhile no client can begin to train there. If one trains already, nothing is removed and the result is False.
    """
    with ExitStack() as held, suppress(FileNotFoundError):  # another process removes it as well
        files = sorted(_files(path), key=lambda file: file.suffix == ".lock")
        for lock in (file for file in files if file.suffix == ".lock"):
            try:
                with suppress(OSError):
                    held.enter_context(locks.take(lock, f"{lock} is held"))
            except InputError:
                return False
        for file in files:
            if os.name == "nt" and file.suffix == ".lock":  # a file that is held can't be removed there
                held.close()
            file.unlink(missing_ok=True)
        with suppress(OSError):  # not empty
            path.rmdir()
    return True


def clean(
    directory: Path, days: float | None = None, most_bytes: int | None = None, spare: str | None = None
) -> list[TrainingStates]:
    """Removes old states of trainings, and returns those that it removed.

    days         removes trainings to which no client wrote for this number of days
    most_bytes   then removes the oldest ones until all together need at most this
    spare        a training that is never removed. Those that are `in_use` are not removed either
    """
    require(days is None or days >= 0, f"days must not be negative, got {days}")
    there = [states for states in trainings(directory) if states.training != spare]
    total, removed = sum(states.size_bytes for states in trainings(directory)), []
    for states in there:
        old = days is not None and states.changed <= time.time() - days * DAY
        large = most_bytes is not None and total > most_bytes
        if (old or large) and remove(states.path):
            total -= states.size_bytes
            removed.append(states)
    return removed


def _files(path: Path) -> Iterator[Path]:
    for file in path.iterdir():
        if (file.suffix in SUFFIXES or DAMAGED in file.name) and not file.is_dir():
            yield file

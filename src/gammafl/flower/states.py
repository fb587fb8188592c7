"""Where the states of clients lie, and when they go: at the end of their training, or when old or too large."""

import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from gammafl.core.errors import InputError, require
from gammafl.files import locks

PREFIX = "training-"
NAMED = re.compile(rf"{PREFIX}[0-9a-f]{{16}}")
"""Folders that a server's random word gave its name to. Others, such as training-data, are somebody else's."""

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
    """When a client last wrote there, in seconds since 1970."""

    @property
    def training(self) -> str:
        return self.path.name.removeprefix(PREFIX)


def state_directory() -> Path:
    """$GAMMAFL_STATE, or gammafl in the user's directory for state."""
    if own := os.environ.get("GAMMAFL_STATE"):
        return Path(own)
    return platformdirs.user_state_path("gammafl", appauthor=False)


def simulation_directory() -> Path:
    """Where simulated clients keep their states: a temporary place, for this user alone.

    All processes of a simulation find it, since each client may train in another one.
    """
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    path = Path(tempfile.gettempdir()) / f"gammafl-simulation-{user}"
    if path.is_symlink() or (path.exists() and hasattr(os, "getuid") and path.stat().st_uid != os.getuid()):
        raise InputError(f"{path} belongs to somebody else; name a directory: compress(state_dir=…) or $GAMMAFL_STATE")
    return path


def folder_of(directory: Path, training: str) -> Path:
    """The folder of one training. `training` is a word of a server's: letters, digits and _ . : - alone."""
    return directory / f"{PREFIX}{training}"


def trainings(directory: Path) -> list[TrainingStates]:
    """All that is there, the oldest first. What another process removes meanwhile is left out."""
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
    """Whether a client trains at this moment whose state is in the folder `path`."""
    for lock in path.glob("*.lock"):
        try:
            with suppress(OSError), locks.take(lock, f"{lock} is held"):
                pass
        except InputError:
            return True
    return False


def remove(path: Path) -> None:
    """The folder of a training goes, with all files of ours in it; others, and with them the folder, stay."""
    with suppress(FileNotFoundError):  # another process removes it as well
        for file in _files(path):
            file.unlink(missing_ok=True)
    with suppress(OSError):  # not empty
        path.rmdir()


def clean(
    directory: Path, days: float | None = None, most_bytes: int | None = None, spare: str | None = None
) -> list[TrainingStates]:
    """Removes trainings that no client wrote to for `days`, then the oldest until all need at most `most_bytes`.

    The training `spare` stays, and so do those that are `in_use`. Returns what was removed.
    """
    require(days is None or days >= 0, f"days must not be negative, got {days}")
    there = [states for states in trainings(directory) if states.training != spare]
    total, removed = sum(states.size_bytes for states in trainings(directory)), []
    for states in there:
        old = days is not None and states.changed <= time.time() - days * DAY
        large = most_bytes is not None and total > most_bytes
        if (old or large) and not in_use(states.path):
            remove(states.path)
            total -= states.size_bytes
            removed.append(states)
    return removed


def _files(path: Path) -> Iterator[Path]:
    for file in path.iterdir():
        if (file.suffix in SUFFIXES or DAMAGED in file.name) and not file.is_dir():
            yield file

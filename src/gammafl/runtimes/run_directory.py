"""A run's directory: config.toml, rounds.jsonl, checkpoint/, and when it is done summary.json and the model.

Of one's own task there is task.sha256 beside config.toml: the file that made the task is part of the configuration.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

from gammafl.config import RunConfig, flat, make_config, read_toml, to_toml
from gammafl.core.errors import InputError, require
from gammafl.federated.rounds import Record
from gammafl.runtimes.storing import storing
from gammafl.tasks.data.files import write_atomically
from gammafl.tasks.own import is_own, own_digest


class RunDirectory:
    """The files of one run. Nothing is created before `begin`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.toml"
        self.own_file = path / "task.sha256"
        self.ledger_file = path / "rounds.jsonl"
        self.summary_file = path / "summary.json"
        self.checkpoints = path / "checkpoint"

    def holds(self, config: RunConfig) -> bool:
        """Whether a run of `config` is here; another run, or other files, are an error."""
        if not self.config_file.exists():
            if self.path.exists() and any(path.suffix != ".part" for path in self.path.iterdir()):
                raise InputError(f"{self.path} is not empty and holds no run; choose another --out")
            return False
        here = self.config()
        if to_toml(here) != to_toml(config):  # not ==, to which k = 1 (an entry) and k = 1.0 (all) are the same
            raise InputError(f"{self.path} holds another run ({_differences(here, config)}); choose another --out")
        if self.own_file.exists() and self.own_file.read_text() != own_digest(config.task):
            raise InputError(
                f"{config.task.partition(':')[0]} has changed since the run in {self.path} began; choose another --out,"
                f" or remove {self.own_file} if the task is still the same"
            )
        return True

    def config(self) -> RunConfig:
        try:
            return make_config(read_toml(self.config_file))
        except InputError as error:
            raise InputError(f"{self.config_file} is damaged ({error}); choose another --out") from None

    def summary(self) -> dict[str, Any] | None:
        """The summary of a finished run, else None."""
        if not self.summary_file.exists():
            return None
        try:
            summary = dict(json.loads(self.summary_file.read_text()))
            require(summary.keys() >= {"method", "seed", "dim", "metric"}, "it has no method, seed, dim or metric")
        except (ValueError, TypeError):
            raise InputError(
                f"{self.summary_file} is damaged; remove it, and the same command (run: with --resume) writes it again"
            ) from None
        return summary

    @contextmanager
    def claimed(self, config: RunConfig) -> Iterator[None]:
        """The directory for a run of `config`, for this process alone."""
        with storing(self.path, "start the run again"):
            self.path.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path, os.O_RDONLY)
        try:
            self._lock(handle)
            if not self.holds(config):
                with storing(self.config_file, "start the run again"):
                    if is_own(config.task):
                        write_atomically(self.own_file, own_digest(config.task).encode())
                    write_atomically(self.config_file, to_toml(config).encode())
            yield
        finally:
            os.close(handle)

    def _lock(self, handle: int) -> None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"another process runs in {self.path}; wait for it or choose another --out") from None

    @contextmanager
    def open_ledger(self, keep_bytes: int) -> Iterator["Ledger"]:
        """The ledger for appending, cut back to `keep_bytes`: rounds after the checkpoint are run again."""
        with storing(self.ledger_file):
            stream = self.ledger_file.open("ab", buffering=0)
        with stream:
            if os.fstat(stream.fileno()).st_size < keep_bytes:
                raise InputError(f"{self.ledger_file} is shorter than its checkpoint says; remove {self.path}")
            stream.truncate(keep_bytes)
            yield Ledger(stream)

    def records(self) -> list[Record]:
        """The records so far; a line that is still being written is left out."""
        if not self.ledger_file.exists():
            return []
        try:
            with self.ledger_file.open() as lines:
                return [json.loads(line) for line in lines if line.endswith("\n")]
        except ValueError as error:
            raise InputError(f"{self.ledger_file} is damaged ({error}); remove {self.path} to run it anew") from None

    def finish(self, summary: dict[str, Any]) -> None:
        with storing(self.summary_file):
            write_atomically(self.summary_file, (json.dumps(summary, indent=2, ensure_ascii=False) + "\n").encode())


class Ledger:
    """rounds.jsonl while it is written: whole lines, which others may read meanwhile.

    `stream` has no buffer: what could not be written there would be tried again, and fail again, when it is closed.
    """

    def __init__(self, stream: FileIO) -> None:
        self.stream = stream

    def append(self, record: Record) -> None:
        line = json.dumps(record).encode() + b"\n"
        with storing(str(self.stream.name)):
            while line:
                line = line[self.stream.write(line) :]

    def sync(self) -> int:
        """All records are on disk; returns the ledger's length in bytes."""
        with storing(str(self.stream.name)):
            os.fsync(self.stream.fileno())
        return os.fstat(self.stream.fileno()).st_size


def free_directory(parent: Path, name: str) -> Path:
    """`parent/name`, or with -2, -3, … the first that is not there."""
    return next(path for path in _numbered(parent, name) if not path.exists())


def latest_directory(parent: Path, name: str) -> Path:
    """The last of `parent/name`, `name-2`, … that is there; `parent/name` if none is."""
    latest = parent / name
    for path in _numbered(parent, name):
        if not path.exists():
            return latest
        latest = path
    raise AssertionError("unreachable")


def _numbered(parent: Path, name: str) -> Iterator[Path]:
    yield parent / name
    number = 2
    while True:
        yield parent / f"{name}-{number}"
        number += 1


def _differences(here: RunConfig, wanted: RunConfig) -> str:
    ours, theirs = flat(here.model_dump()), flat(wanted.model_dump())
    keys = [key for key in sorted(ours.keys() | theirs.keys()) if repr(ours.get(key)) != repr(theirs.get(key))]
    return ", ".join(f"{key} = {ours.get(key)} there, {theirs.get(key)} asked for" for key in keys[:3])

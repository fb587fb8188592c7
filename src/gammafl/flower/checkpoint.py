"""The server's state on its disk. A ServerApp that died continues from it when it is started again."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gammafl.core.errors import GammaflError, InputError, require
from gammafl.files import locks, private_files, tensor_files
from gammafl.files.disk_errors import storing
from gammafl.files.reading import Count, Facts, checked, is_there
from gammafl.flower.packing import Packer

LOG = logging.getLogger("flwr")

FORMAT = 1
LOCK_SECONDS = 30.0
"""How long a ServerApp waits until another one that uses the same directory ends."""

ELSEWHERE = "name another directory: Compressed(…, checkpoint=…)"


class Terms(Facts):
    """Arguments that must be the same when a training continues."""

    strategy: str
    """The names of its class and of those that it wraps: others would not understand what these remember."""

    method: str
    rounds: Count
    local_steps: Count
    downlink: str
    privacy: str
    whole: list[str]
    """Patterns. They decide on the layout, which clients make from the patterns of the offer."""


class CheckpointFacts(Facts):
    """What a checkpoint holds in addition to its arrays."""

    format: Literal[1]
    terms: Terms
    done: Count | None
    """The strategy's number of the last round that it aggregated; some strategies count from 0. None: none yet."""

    rounds: dict[str, Any]
    """`Rounds.state`."""

    strategy: dict[str, Any]
    """`StrategyState.pack`."""

    hooks: dict[str, Any]
    """What `flower/resumption.py` keeps in addition."""


@dataclass(frozen=True)
class Stored:
    """A checkpoint that was read."""

    facts: CheckpointFacts
    tensors: Mapping[str, Any]


class Checkpoint:
    """The file DIRECTORY/server.safetensors. It is replaced in one step: it is always the whole old or new file.

    There is no copy of an older state. A server that went back to it would forget uploads that it has confirmed.
    """

    def __init__(self, directory: Path) -> None:
        self.file, self._lock = directory / "server.safetensors", directory / "server.lock"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """While it lasts, no other process can use the directory."""
        with storing(self.file.parent, "run again", ELSEWHERE):
            private_files.make_directory(self.file.parent)
            lock = locks.take(
                self._lock,
                f"another ServerApp uses {self.file.parent}; end it, or {ELSEWHERE}",
                LOCK_SECONDS,
                lambda: LOG.warning("gammafl: another ServerApp uses %s; waiting for it to end", self.file.parent),
            )
        with lock:
            yield

    def read(self, terms: Terms) -> Stored | None:
        """The stored state, or None. An `InputError` if it is damaged, or belongs to another training."""
        if not is_there(self.file):
            return None
        try:
            raw, tensors = tensor_files.read(self.file)
            require(raw.get("format") == FORMAT, "another version of gammafl wrote it")
            facts = checked(CheckpointFacts, raw)
        except (*tensor_files.DAMAGED, OSError, GammaflError) as error:
            raise unusable(self.file, error) from None
        for name in Terms.model_fields:
            here, there = getattr(terms, name), getattr(facts.terms, name)
            require(
                here == there,
                f"{self.file} is of another training: its {name} is {there}, here it is {here}. Remove it to begin"
                f" anew, or {ELSEWHERE}",
            )
        return Stored(facts, tensors)

    def write(self, facts: dict[str, Any], packer: Packer) -> None:
        with storing(self.file, "run again: the training continues from the previous round", ELSEWHERE):
            tensor_files.replace(self.file, packer.tensors, {"format": FORMAT, **facts})


def unusable(file: Path, error: Exception) -> InputError:
    """The error for a checkpoint that can't be used."""
    return InputError(f"{file} can't be used ({error}); remove it to begin anew, or {ELSEWHERE}")

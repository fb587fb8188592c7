"""Where a run keeps its records and its state: in memory, or in a run directory."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from gammafl.config.simulation import AnyConfig
from gammafl.federated import rounds
from gammafl.federated.plan import Plan
from gammafl.federated.records import RoundRecord, Summary
from gammafl.federated.server import ServerState
from gammafl.files import private_files, tensor_files
from gammafl.files.disk_errors import storing
from gammafl.runs import checkpoint
from gammafl.runs.checkpoint import Saved
from gammafl.runs.directory import Ledger, RunDirectory
from gammafl.tasks.data.catalogue import Say


class Store(Protocol):
    """What the runner needs of a store."""

    durable: bool
    """Whether checkpoints outlive the process."""

    @property
    def path(self) -> Path | None:
        """The directory in which callbacks may keep their own files; None if there is none."""

    def start(self, plan: Plan, say: Say) -> Saved:
        """The state from which the run continues: that of its last checkpoint, else that before the first round."""
        ...

    def scratch(self) -> Path:
        """A directory for residuals that do not fit into memory."""
        ...

    def append(self, record: RoundRecord) -> None:
        """Adds the record of a round."""
        ...

    def save(self, saved: Saved) -> None:
        """Saves a checkpoint of the run after its last record."""
        ...

    def records(self) -> list[RoundRecord]:
        """All records of the run so far."""
        ...

    def finish(self, plan: Plan, state: ServerState, summary: Summary) -> None:
        """Keeps the results of the run, if the store outlives the process."""
        ...


class InMemory:
    """The store of a run that ends with its process."""

    durable = False
    path = None

    def __init__(self) -> None:
        self._records: list[RoundRecord] = []
        self._scratch: TemporaryDirectory[str] | None = None

    def start(self, plan: Plan, say: Say) -> Saved:
        return Saved(rounds.start(plan), {})

    def scratch(self) -> Path:
        self._scratch = self._scratch or TemporaryDirectory(prefix="gammafl-")
        return Path(self._scratch.name)

    def append(self, record: RoundRecord) -> None:
        self._records.append(record)

    def save(self, saved: Saved) -> None:
        raise NotImplementedError("a run in memory has no checkpoints")

    def records(self) -> list[RoundRecord]:
        return self._records

    def finish(self, plan: Plan, state: ServerState, summary: Summary) -> None:
        if self._scratch is not None:
            self._scratch.cleanup()


class OnDisk:
    """The store of a run that outlives its process: everything is in its run directory."""

    durable = True

    def __init__(self, directory: RunDirectory, ledger: Ledger, saved: Saved | None) -> None:
        self.directory, self.path = directory, directory.path
        self._ledger = ledger
        self._saved = saved

    def start(self, plan: Plan, say: Say) -> Saved:
        return self._saved or Saved(rounds.start(plan), {}, fingerprint=plan.task.fingerprint())

    def records(self) -> list[RoundRecord]:
        return self.directory.records()

    def scratch(self) -> Path:
        return self.directory.path / "residuals"

    def append(self, record: RoundRecord) -> None:
        self._ledger.append(record)

    def save(self, saved: Saved) -> None:
        checkpoint.save(self.directory.checkpoints, replace(saved, ledger_bytes=self._ledger.sync()))

    def finish(self, plan: Plan, state: ServerState, summary: Summary) -> None:
        """Writes the models, whose tensors have the names of the module's, and at last the summary."""
        shutil.rmtree(self.scratch(), ignore_errors=True)
        models = {self.directory.model_file: state.held, self.directory.averaged_model_file: state.average}
        for path, model in models.items():
            if model is not None:
                with storing(path):
                    tensor_files.replace(path, plan.layout.split(model), mode=private_files.PUBLIC_FILE)
        self.directory.finish(summary)


@contextmanager
def on_disk(directory: RunDirectory, config: AnyConfig, plan: Plan, say: Say) -> Iterator[OnDisk]:
    """The store of the run `config` in a directory. No other process can use the directory meanwhile."""
    with directory.claimed(config, str(getattr(plan.task, "arithmetic", ""))):
        saved = checkpoint.load(directory.checkpoints, plan, directory.ledger_file, say)
        with directory.open_ledger(0 if saved is None else saved.ledger_bytes) as ledger:
            directory.go_on()
            yield OnDisk(directory, ledger, saved)

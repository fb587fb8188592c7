"""Trackers: callbacks that write the figures of a run (`scalars`) to TensorBoard or to Weights & Biases."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from gammafl.core.errors import InputError, not_installed
from gammafl.core.names import did_you_mean
from gammafl.federated.callbacks import Callback, Ended, Evaluated, Round, Run
from gammafl.files.atomic import read_json

ELSEWHERE = "runs"
"""Where trackers write if neither they nor the run have a directory."""


class TensorBoard(Callback):
    """Writes the run as a TensorBoard log. `tensorboard --logdir DIRECTORY` shows it.

    directory    where the log is; by default "tensorboard" in the run's directory, or in runs/METHOD-seedN if the run
                 has no directory

    A step is a round. When a run continues, the log says so, and TensorBoard drops what it had of rounds that are run
    again. If several runs write into one directory, TensorBoard shows only the last one.

    >>> TensorBoard("logs").directory
    PosixPath('logs')
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        self.directory = None if directory is None else Path(directory)
        self._writer: Any = None

    def on_start(self, run: Run) -> None:
        try:
            from tensorboard.compat.proto.event_pb2 import SessionLog
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError:
            raise not_installed("TensorBoard", "tensorboard") from None
        self._writer = EventFileWriter(str(self.directory or _place(run) / "tensorboard"))
        self._write(run.round + 1, session_log=SessionLog(status=SessionLog.START))

    def on_round(self, round: Round) -> None:
        self._show(round.round, round.scalars())

    def on_evaluation(self, evaluation: Evaluated) -> None:
        self._show(evaluation.round, evaluation.scalars())

    def on_end(self, end: Ended) -> None:
        self._writer.close()

    def _show(self, step: int, scalars: Mapping[str, float]) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in scalars.items()]
        self._write(step, summary=Summary(value=values))

    def _write(self, step: int, **content: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._writer.add_event(Event(wall_time=time.time(), step=step, **content))


class WandB(Callback):
    """Writes the run to Weights & Biases.

    project      the name of the project at W&B
    name         the name of the run there; by default its method and seed
    mode         "online", which needs a key; "offline", which needs no key and no network (`wandb sync` sends the run
                 later); or "disabled". By default the value of WANDB_MODE, or else "online"
    directory    where W&B's files are; by default the run's directory, or runs/METHOD-seedN if the run has none
    settings     further arguments of `wandb.init`, such as {"tags": ["thin link"]}

    A step is a round. A run that continues stays the same run at W&B. Rounds that are run again are left out, because
    W&B has them already.

    >>> WandB("thin-links", mode="offline").project
    'thin-links'
    """

    def __init__(
        self,
        project: str = "gammafl",
        *,
        name: str | None = None,
        mode: Literal["online", "offline", "disabled"] | None = None,
        directory: str | os.PathLike[str] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.project, self.name, self.mode = project, name, mode
        self.directory = None if directory is None else Path(directory)
        self.settings = dict(settings or {})

    def on_start(self, run: Run) -> None:
        try:
            import wandb
        except ImportError:
            raise not_installed("Weights & Biases", "wandb") from None
        self._note = None if run.directory is None else run.directory / "wandb.json"
        there = self._read() if run.round else {}
        self._shown, self._waiting = int(there.get("round", -1)), dict[str, float]()
        place = self.directory or _place(run)
        place.mkdir(parents=True, exist_ok=True)
        try:
            self._run = wandb.init(
                project=self.project,
                name=self.name or _name(run),
                mode=self.mode,
                dir=place,
                id=there.get("id"),
                resume="allow" if there else None,
                config={"gammafl": dict(run.settings), "method": run.method, "task": run.task, "seed": run.seed},
                **self.settings,
            )
        except wandb.errors.UsageError as error:
            cure = "log in with `wandb login`, or set WANDB_MODE=offline"
            raise InputError(f"Weights & Biases can't start ({str(error).splitlines()[0]}); {cure}") from None
        self._step = run.round

    def on_round(self, round: Round) -> None:
        self._show(round.round, round.scalars())

    def on_evaluation(self, evaluation: Evaluated) -> None:
        self._show(evaluation.round, evaluation.scalars())

    def on_end(self, end: Ended) -> None:
        self._send()
        if end.summary is not None:
            self._run.summary.update({"result": end.summary.table()})
        self._run.finish(exit_code=0 if end.error is None else 1)

    def _show(self, step: int, scalars: Mapping[str, float]) -> None:
        """Collects the figures of a step. W&B takes them all at once, so they are sent when the next step begins."""
        if step != self._step:
            self._send()
        self._step = step
        self._waiting.update(scalars)

    def _send(self) -> None:
        if self._waiting and self._step > self._shown:
            self._run.log(self._waiting, step=self._step, commit=True)
            self._shown = self._step
            if self._note is not None:
                part = self._note.with_suffix(".part")  # no flush to the disk after each round: that would take time
                part.write_text(json.dumps({"id": self._run.id, "round": self._shown}), "utf-8")
                part.replace(self._note)
        self._waiting = {}

    def _read(self) -> dict[str, Any]:
        """The note of earlier sessions: the run's id at W&B and the last round that was sent; empty without one."""
        return (None if self._note is None else read_json(self._note)) or {}


TRACKERS: dict[str, type[TensorBoard] | type[WandB]] = {"tensorboard": TensorBoard, "wandb": WandB}
"""Name, as in `--track` → the tracker."""


def tracker_named(name: str) -> Callback:
    """The tracker of that name, with its default settings."""
    if name not in TRACKERS:
        meant = did_you_mean(name, TRACKERS) or f"; there are {', '.join(TRACKERS)}"
        raise InputError(f"there is no tracker {name!r}{meant}")
    return TRACKERS[name]()


def _place(run: Run) -> Path:
    """Where a tracker writes if it was given no directory."""
    return run.directory or Path(ELSEWHERE) / _name(run)


def _name(run: Run) -> str:
    named = "".join(letter if letter.isalnum() or letter in "-._=" else "-" for letter in run.method[:60]).strip("-")
    return named if run.seed is None else f"{named}-seed{run.seed}"

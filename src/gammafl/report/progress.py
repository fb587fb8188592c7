"""How a run shows that it goes on: a bar on a terminal, plain lines in a pipe, JSON lines for programs."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress


@dataclass(frozen=True)
class Status:
    """Where a run stands."""

    run: str
    round: int
    rounds: int
    metric_name: str
    metric: float | None
    kept_fraction: float
    uplink_bytes: int
    evaluated: bool

    def text(self) -> str:
        metric = "" if self.metric is None else f"{self.metric_name} {show_metric(self.metric_name, self.metric)}  "
        return f"{metric}kept {self.kept_fraction:.2%}  sent {show_bytes(self.uplink_bytes)}"


class Progress(Protocol):
    """Sees what a run does."""

    def say(self, text: str) -> None:
        """A line for the user, such as where data came from."""

    def update(self, status: Status) -> None:
        """After a round."""


class Silent:
    def say(self, text: str) -> None:
        pass

    def update(self, status: Status) -> None:
        pass


class Lines:
    """A line at about every twentieth of a run."""

    def __init__(self) -> None:
        self._shown: dict[str, int] = {}

    def say(self, text: str) -> None:
        print(text, flush=True)

    def update(self, status: Status) -> None:
        twentieth = 20 * status.round // status.rounds
        if twentieth > self._shown.get(status.run, 0):
            self._shown[status.run] = twentieth
            print(f"{status.run}: round {status.round}/{status.rounds}  {status.text()}", flush=True)


class JsonLines:
    """A JSON object for every evaluation on standard output; words for people on standard error."""

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def update(self, status: Status) -> None:
        if status.evaluated:
            print(json.dumps(asdict(status)), flush=True)


class Bars:
    """A bar for each run, with metric, kept fraction, bytes sent and time left."""

    def __init__(self, bars: RichProgress) -> None:
        self.bars = bars
        self._tasks: dict[str, TaskID] = {}

    def say(self, text: str) -> None:
        self.bars.console.print(text, style="dim", highlight=False)

    def update(self, status: Status) -> None:
        if status.run not in self._tasks:
            self._tasks[status.run] = self.bars.add_task(status.run, total=status.rounds, text="")
        self.bars.update(self._tasks[status.run], completed=status.round, text=status.text())


@contextmanager
def show_progress(as_json: bool = False) -> Iterator[Progress]:
    """The progress that fits where output goes."""
    if as_json:
        yield JsonLines()
        return
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        yield Lines()
        return
    columns: list[Any] = [
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[text]}", style="dim"),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
    ]
    with RichProgress(*columns, console=Console(stderr=True)) as bars:
        yield Bars(bars)


def show_metric(name: str, value: float) -> str:
    """Accuracies in per cent, everything else as it is."""
    return f"{100 * value:.2f}%" if name == "accuracy" else f"{value:.3f}"


def show_bytes(count: float) -> str:
    """Decimal units: 1.53 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.2f} {unit}"
        count /= 1000
    return f"{count:.2f} TB"

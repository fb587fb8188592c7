"""Shows how far a run is: a bar on a terminal or in a notebook, lines in a pipe, JSON for programs."""

import json
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from html import escape
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.progress import Task as RichTask
from rich.table import Column
from rich.text import Text

from gammafl.federated.callbacks import Callback, Reason, Round
from gammafl.federated.units import show_bytes, show_duration, show_metric

LOG = logging.getLogger("gammafl")


@dataclass(frozen=True)
class Status:
    """How far a run is, and its figures so far."""

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
    """Shows the user what a run does."""

    def say(self, text: str) -> None:
        """Shows a line, such as where data came from."""

    def update(self, status: Status) -> None:
        """Shows the status after a round."""


class Silent:
    """Shows nothing."""

    def say(self, text: str) -> None:
        pass

    def update(self, status: Status) -> None:
        pass


class Logged(Silent):
    """Shows nothing. Lines for the user go into the log."""

    def say(self, text: str) -> None:
        LOG.warning("gammafl: %s", text)


class Lines:
    """Prints a line at about every twentieth of a run."""

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
    """Prints a JSON object for every evaluation to standard output. Lines for the user go to standard error."""

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def update(self, status: Status) -> None:
        if status.evaluated:
            print(json.dumps(asdict(status)), flush=True)


class Cropped(TextColumn):
    """The column that gives way where a terminal is narrow."""

    def render(self, task: RichTask) -> Text:
        text = super().render(task)
        text.no_wrap, text.overflow = True, "ellipsis"
        return text


class Bars:
    """A bar for each run, with metric, kept fraction, bytes sent and time left.

    On a narrow terminal the bars are short, the beginning of a long name is left out, and figures are cropped.
    """

    NARROW, LONG = 120, 36

    def __init__(self, bars: RichProgress) -> None:
        self.bars = bars
        self._tasks: dict[str, TaskID] = {}

    @classmethod
    def on(cls, console: Console) -> "Bars":
        """New ones, on a terminal."""
        return cls(
            RichProgress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=10 if console.width < cls.NARROW else 24),
                MofNCompleteColumn(),
                Cropped("{task.fields[text]}", style="dim", table_column=Column()),  # which alone may shrink
                TimeRemainingColumn(compact=True, elapsed_when_finished=True),
                console=console,
            )
        )

    def say(self, text: str) -> None:
        self.bars.console.print(text, style="dim", highlight=False, markup=False)

    def update(self, status: Status) -> None:
        if status.run not in self._tasks:
            crop = self.bars.console.width < self.NARROW and len(status.run) > self.LONG
            name = f"…{status.run[1 - self.LONG :]}" if crop else status.run
            self._tasks[status.run] = self.bars.add_task(name, total=status.rounds, text="")
        self.bars.update(self._tasks[status.run], completed=status.round, text=status.text())


class Notebook:
    """A bar of plain HTML for each run, which every notebook can show. It moves at each hundredth of the run."""

    def __init__(self) -> None:
        self._handles: dict[str, Any] = {}
        self._hundredth: dict[str, int] = {}

    def say(self, text: str) -> None:
        print(text, flush=True)

    def update(self, status: Status) -> None:
        from IPython.display import display

        hundredth = 100 * status.round // status.rounds
        if hundredth == self._hundredth.get(status.run):
            return
        self._hundredth[status.run] = hundredth
        shown = f"{status.run}: round {status.round}/{status.rounds}  {status.text()}"
        bar = f'<progress value="{status.round}" max="{status.rounds}"></progress> {escape(shown)}'
        both = {"text/plain": shown, "text/html": f"<div>{bar}</div>"}
        if status.run in self._handles:
            self._handles[status.run].update(both, raw=True)
        else:
            self._handles[status.run] = display(both, raw=True, display_id=True)


class Overall:
    """The progress of many runs together: a bar, or a line at every twentieth; a line when a run ends; the time left.

    All runs count the same, and the time left follows from the measured pace. `JsonLines` gets the status of every run.
    `Bars` shows one bar for each run if there are at most `SINGLY` runs.
    """

    SINGLY = 12

    def __init__(self, inner: Progress, runs: int) -> None:
        self.inner = inner
        self.runs = runs
        self._shares: dict[str, float] = {}
        self._first: dict[str, float] = {}
        self._began = time.perf_counter()
        self._twentieth = 0

    def say(self, text: str) -> None:
        self.inner.say(text)

    def update(self, status: Status) -> None:
        share = status.round / status.rounds
        self._first.setdefault(status.run, 0.0 if share < 0.05 else share)
        self._shares[status.run] = share
        if isinstance(self.inner, JsonLines) or (isinstance(self.inner, Bars) and self.runs <= self.SINGLY):
            self.inner.update(status)
        elif status.round == status.rounds:
            ended = sum(share == 1 for share in self._shares.values())
            self.say(f"{ended}/{self.runs} {status.run}: {status.text()}  {self.time_left()}")
        elif isinstance(self.inner, Bars):
            self.inner.update(replace(status, run=f"all {self.runs} runs", round=self._percent(), rounds=100))
        elif (twentieth := self._percent() // 5) > self._twentieth:
            self._twentieth = twentieth
            self.say(f"{self._percent()}% of {self.runs} runs done, {self.time_left()}")

    def time_left(self) -> str:
        """'about 12 min left', from the work of this session only, since a resumed run did not begin at 0."""
        made = sum(share - self._first[run] for run, share in self._shares.items())
        left = self.runs - sum(self._shares.values())
        if made <= 0:
            return "just begun"
        seconds = (time.perf_counter() - self._began) * left / made
        return f"about {show_duration(max(0.0, seconds))} left"

    def _percent(self) -> int:
        return min(99, int(100 * sum(self._shares.values()) / max(1, self.runs)))


class Shown(Callback):
    """Shows a run in a `Progress`, under a label."""

    def __init__(self, progress: Progress, label: str) -> None:
        self._progress, self._label = progress, label
        self._metric: float | None = None

    def on_round(self, round: Round) -> Reason:
        evaluation, name = round.evaluation, round.run.metric or ""
        self._metric = self._metric if evaluation is None else evaluation.values[name]
        for warning in round.warnings:
            self._progress.say(f"{self._label}, round {round.round}: {warning}")
        status = Status(
            run=self._label,
            round=round.round,
            rounds=round.run.rounds,
            metric_name=name,
            metric=self._metric,
            kept_fraction=round.total_kept_fraction,
            uplink_bytes=round.total_uplink_bytes,
            evaluated=evaluation is not None,
        )
        self._progress.update(status)
        return None


@contextmanager
def show_progress(as_json: bool = False) -> Iterator[Progress]:
    """The progress that fits where the output goes: a notebook, a terminal, a pipe, or a program (`as_json`)."""
    if as_json:
        yield JsonLines()
        return
    if Console().is_jupyter:
        yield Notebook()
        return
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        yield Lines()
        return
    shown = Bars.on(Console(stderr=True))
    with shown.bars:
        yield shown

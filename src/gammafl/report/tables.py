"""Tables, printed with rich in a terminal, or as Markdown in documents."""

import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gammafl.federated.records import Summary
from gammafl.federated.units import show_bytes, show_duration, show_metric
from gammafl.methods.registry import label_of

PICKED = "Best is the best of a run's evaluations, picked on the test set"
SPREAD = "± is the standard deviation over seeds"


@dataclass(frozen=True)
class TextTable:
    """A table. The first column is aligned to the left, the others to the right unless they are `prose`."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    prose: bool = False

    def markdown(self) -> str:
        rule = "|---" if self.prose else "|---:"
        head = [f"| {' | '.join(self.columns)} |", "|---" + rule * (len(self.columns) - 1) + "|"]
        lines = [f"**{self.title}**", "", *head, *(f"| {' | '.join(row)} |" for row in self.rows)]
        return "\n".join([*lines, "", self.note, ""] if self.note else [*lines, ""])

    def print(self, to_stderr: bool = False) -> None:
        note = Text(self.note) if self.note else None  # plain text: "[one seed]" would be taken for markup
        table = Table(title=Text(self.title), caption=note, title_justify="left", caption_justify="left")
        for i, column in enumerate(self.columns):
            table.add_column(Text(column), justify="right" if i and not self.prose else "left", overflow="fold")
        for row in self.rows:
            broken = self.prose or not sys.stdout.isatty()
            table.add_row(*(Text(cell if broken else cell.replace(" ", "\N{NO-BREAK SPACE}")) for cell in row))
        console(to_stderr).print(table)


def counts_of(numbers: Collection[int], thing: str) -> str:
    """'3 seeds', or '1 to 2 seeds' where they differ."""
    return f"{_range(numbers)} {thing}" + ("" if max(numbers, default=0) == 1 else "s")


def _range(numbers: Collection[int]) -> str:
    fewest, most = min(numbers, default=0), max(numbers, default=0)
    return str(most) if fewest == most else f"{fewest} to {most}"


def console(to_stderr: bool = False) -> Console:
    """A console for standard output or standard error. If that is not a terminal, lines have up to 140 characters."""
    stream = sys.stderr if to_stderr else sys.stdout
    return Console(highlight=False, stderr=to_stderr, width=None if stream.isatty() else 140)


def best_of(evaluations: Iterable[int | None]) -> str:
    """'best of 100' for runs of 100 evaluations each, or 'best of 40 to 100'; 'best' if a number is not known."""
    counts = [count or 0 for count in evaluations]
    return f"best of {_range(counts)}" if min(counts, default=0) else "best"


def times_less(full: float, uplink: float) -> str:
    """'23.4×'; '–' where nothing was sent at all."""
    return f"{full / uplink:.1f}×" if uplink else "–"


def _down_rows(summary: Summary) -> list[list[str]]:
    down, dense = summary.downlink_bytes_per_client, summary.dense_bytes_per_client
    if not down:
        return []
    both = times_less(2 * dense, down + summary.uplink_bytes_per_client)
    rows = [["downlink per client", f"{show_bytes(down)} ({times_less(dense, down)} less than dense)"]]
    return [*rows, ["both directions", f"{both} less than dense"]] if down < dense else rows


def run_table(summary: Summary, path: str) -> TextTable:
    """The results of one run in a few lines."""
    uplink, metric = summary.uplink_bytes_per_client, summary.metric
    last, final, best, averaged, server = (
        "–" if value is None else show_metric(metric, value)
        for value in (summary.last_mean, summary.final, summary.best, summary.averaged, summary.server)
    )
    less = times_less(summary.dense_bytes_per_client, uplink)
    rows = [
        [f"{metric}, final", final],
        [f"{metric}, mean of last {summary.last_count}", last],
        [f"{metric}, {best_of([summary.evaluations])}", best],
        [f"{metric}, averaged model", averaged],
        *([[f"{metric}, server's own model", server]] if summary.server is not None else []),
        ["kept", f"{100 * summary.kept_fraction:.3f}%"],
        ["uplink per client", f"{show_bytes(uplink)} ({less} less than dense)"],
        *_down_rows(summary),
        *([["time on the link", show_duration(summary.link_seconds)]] if summary.link_seconds is not None else []),
        ["time", f"{summary.wall_seconds:.1f} s"],
        ["time for evaluations", f"{100 * summary.evaluation_seconds / summary.wall_seconds:.1f}%"],
        ["peak memory", show_bytes(summary.peak_memory_bytes)],
    ]
    title = f"{label_of(summary.method)} on {summary.task}, seed {summary.seed}"
    return TextTable(title, ["", "value"], rows, f"The run is in {path}. {PICKED}.")

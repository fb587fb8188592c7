"""Tables: rich for a terminal, the same rows as Markdown for documents."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gammafl.methods.registry import entry_named, label_of, names
from gammafl.runs.progress import show_bytes, show_metric

Summary = dict[str, Any]
PICKED = "best: of all evaluations of a run, picked on the test set"


@dataclass(frozen=True)
class TextTable:
    """A table: the first column to the left, the others to the right unless they are prose."""

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
            cells = row if self.prose or not sys.stdout.isatty() else map(_unbroken, row)
            table.add_row(*map(Text, cells))
        console(to_stderr).print(table)


def count_of(number: int, thing: str) -> str:
    """'1 seed', '3 seeds'."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _unbroken(cell: str) -> str:
    return cell.replace(" ", "\N{NO-BREAK SPACE}")


def console(to_stderr: bool = False) -> Console:
    """Standard output, or standard error; as wide as a table needs where it is not a terminal."""
    stream = sys.stderr if to_stderr else sys.stdout
    return Console(highlight=False, stderr=to_stderr, width=None if stream.isatty() else 140)


def comparison_table(title: str, summaries: Sequence[Summary]) -> TextTable:
    """A row a method: mean ± standard deviation over the seeds, and what was sent."""
    methods = list(dict.fromkeys(summary["method"] for summary in summaries))
    dense = [s["uplink_bytes_per_client"] for s in summaries if s["method"] == "fedavg"]
    full = mean(dense or [s["dense_bytes_per_client"] for s in summaries])
    rows = []
    for method in methods:
        runs = [summary for summary in summaries if summary["method"] == method]
        uplink = mean(run["uplink_bytes_per_client"] for run in runs)
        rows.append(
            [
                label_of(method),
                spread(runs, "last_mean"),
                spread(runs, "final"),
                spread(runs, "best"),
                spread(runs, "averaged"),
                f"{100 * mean(run['kept_fraction'] for run in runs):.2f}%",
                show_bytes(uplink),
                times_less(full, uplink),
            ]
        )
    first = summaries[0]
    return TextTable(
        title,
        [
            "method",
            f"{first['metric']}, last {first['last_count']}",
            "final",
            best_of(summaries),
            "averaged model",
            "kept",
            "uplink per client",
            "less than FedAVG",
        ],
        rows,
        f"{count_of(len({s['seed'] for s in summaries}), 'seed')}, {first['iterations']} iterations; ± over seeds; "
        f"{PICKED}; uplink measured from encoded messages{_equal_traffic(methods)}",
    )


def _equal_traffic(methods: Sequence[str]) -> str:
    """Which of the methods were given the traffic of another."""
    pairs = [(method, entry_named(method).follows) for method in methods if method in names()]
    told = [f"{label_of(method)} keeps as many entries as {label_of(leader)}" for method, leader in pairs if leader]
    return "".join(f"; {text}" for text in told)


def spread(runs: Sequence[Summary], key: str) -> str:
    """'82.91% ±0.31' over the runs; without ± for a single one, '–' where it was not measured."""
    values = [run[key] for run in runs if run[key] is not None]
    if not values:
        return "–"
    text = show_metric(runs[0]["metric"], mean(values))
    if len(values) == 1:
        return text
    scale = 100 if runs[0]["metric"] == "accuracy" else 1
    return f"{text} ±{scale * stdev(values):.2f}"


def best_of(figures: Iterable[Mapping[str, Any]]) -> str:
    """'best of 100', of so many evaluations a run; 'best of 40 to 100', or plain 'best' where it is not known."""
    counts: list[int] = [one.get("evaluations") or 0 for one in figures]
    fewest, most = min(counts, default=0), max(counts, default=0)
    if not fewest:
        return "best"
    return f"best of {most}" if fewest == most else f"best of {fewest} to {most}"


def times_less(full: float, uplink: float) -> str:
    """'23.4×'; '–' where nothing was sent at all."""
    return f"{full / uplink:.1f}×" if uplink else "–"


def run_table(summary: Summary, path: str) -> TextTable:
    """One run in a few lines."""
    uplink = summary["uplink_bytes_per_client"]
    single = [summary]
    rows = [
        [f"{summary['metric']}, final", spread(single, "final")],
        [f"{summary['metric']}, mean of last {summary['last_count']}", spread(single, "last_mean")],
        [f"{summary['metric']}, {best_of(single)}", spread(single, "best")],
        [f"{summary['metric']}, averaged model", spread(single, "averaged")],
        ["kept", f"{100 * summary['kept_fraction']:.3f}%"],
        [
            "uplink per client",
            f"{show_bytes(uplink)} ({times_less(summary['dense_bytes_per_client'], uplink)} less than dense)",
        ],
        ["time", f"{summary['wall_seconds']:.1f} s"],
        ["of it, evaluation", f"{100 * summary['evaluation_seconds'] / summary['wall_seconds']:.1f}%"],
        ["peak memory", show_bytes(summary["peak_memory_bytes"])],
    ]
    title = f"{label_of(summary['method'])} on {summary['task']}, seed {summary['seed']}"
    return TextTable(title, ["", "value"], rows, f"in {path}; {PICKED}")

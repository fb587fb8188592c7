"""Tables: rich for a terminal, the same rows as Markdown for documents."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gammafl.federated.records import Summary
from gammafl.federated.units import show_bytes, show_duration, show_metric
from gammafl.methods.registry import entry_named, label_of, names

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


@dataclass(frozen=True)
class TimesTo:
    """Seconds on the link until a metric was reached: method → one a seed, None where it never was."""

    target: float
    seconds: Mapping[str, Sequence[float | None]]

    def text(self, method: str) -> str:
        """The mean over the seeds; '–' where one did not get there."""
        found = [seconds for seconds in self.seconds[method] if seconds is not None]
        return show_duration(mean(found)) if len(found) == len(self.seconds[method]) else "–"


def comparison_table(title: str, summaries: Sequence[Summary], times: TimesTo | None = None) -> TextTable:
    """A row a method: mean ± standard deviation over the seeds, and what was sent."""
    methods = list(dict.fromkeys(summary.method for summary in summaries))
    dense = [summary.uplink_bytes_per_client for summary in summaries if summary.method == "fedavg"]
    full = mean(dense or [summary.dense_bytes_per_client for summary in summaries])
    down = any(compresses_down(summary) for summary in summaries)
    linked = all(summary.link_seconds is not None for summary in summaries)
    rows = []
    for method in methods:
        runs = [summary for summary in summaries if summary.method == method]
        uplink = mean(run.uplink_bytes_per_client for run in runs)
        rows.append(
            [
                label_of(method),
                *spreads(runs),
                f"{100 * mean(run.kept_fraction for run in runs):.2f}%",
                show_bytes(uplink),
                times_less(full, uplink),
                *(_both(runs, full) if down else ()),
                *([show_duration(mean(run.link_seconds or 0.0 for run in runs))] if linked else ()),
                *([times.text(method)] if times else ()),
            ]
        )
    first = summaries[0]
    return TextTable(
        title,
        [
            "method",
            f"{first.metric}, last {first.last_count}",
            "final",
            best_of(summary.evaluations for summary in summaries),
            "averaged model",
            "kept",
            "uplink per client",
            "less than FedAVG",
            *(("downlink per client", "both, less than FedAVG") if down else ()),
            *(("time on the link",) if linked else ()),
            *((f"time to {show_metric(first.metric, times.target)}",) if times else ()),
        ],
        rows,
        f"{count_of(len({s.seed for s in summaries}), 'seed')}, {first.iterations} iterations; ± over seeds; "
        f"{PICKED}; uplink measured from encoded messages{_equal_traffic(methods)}"
        + ("; time: of a virtual clock" if linked else ""),
    )


def compresses_down(summary: Summary) -> bool:
    """Whether clients are sent less than the whole model each time."""
    return 0 < summary.downlink_bytes_per_client < summary.dense_bytes_per_client


def _both(runs: Sequence[Summary], full: float) -> list[str]:
    """What goes down, and both directions against a FedAVG that sends everything both ways."""
    downlink = mean(run.downlink_bytes_per_client for run in runs)
    both = downlink + mean(run.uplink_bytes_per_client for run in runs)
    return [show_bytes(downlink), times_less(2 * full, both)]


def _equal_traffic(methods: Sequence[str]) -> str:
    """Which of the methods were given the traffic of another."""
    pairs = [(method, entry_named(method).follows) for method in methods if method in names()]
    told = [f"{label_of(method)} keeps as many entries as {label_of(leader)}" for method, leader in pairs if leader]
    return "".join(f"; {text}" for text in told)


def spreads(runs: Sequence[Summary]) -> list[str]:
    """The metric of the runs: the last mean, the final one, the best, and that of the averaged model."""
    measured = [(run.last_mean, run.final, run.best, run.averaged) for run in runs]
    return [spread(runs[0].metric, values) for values in zip(*measured, strict=True)]


def spread(metric: str, measured: Iterable[float | None]) -> str:
    """'82.91% ±0.31' over the runs; without ± for a single one, '–' where it was not measured."""
    values = [value for value in measured if value is not None]
    if not values:
        return "–"
    text = show_metric(metric, mean(values))
    if len(values) == 1:
        return text
    scale = 100 if metric == "accuracy" else 1
    return f"{text} ±{scale * stdev(values):.2f}"


def best_of(evaluations: Iterable[int | None]) -> str:
    """'best of 100' for runs of 100 evaluations each; 'best of 40 to 100', or plain 'best' where it is not known."""
    counts = [count or 0 for count in evaluations]
    fewest, most = min(counts, default=0), max(counts, default=0)
    if not fewest:
        return "best"
    return f"best of {most}" if fewest == most else f"best of {fewest} to {most}"


def times_less(full: float, uplink: float) -> str:
    """'23.4×'; '–' where nothing was sent at all."""
    return f"{full / uplink:.1f}×" if uplink else "–"


def _down_rows(summary: Summary) -> list[list[str]]:
    down, dense = summary.downlink_bytes_per_client, summary.dense_bytes_per_client
    if not down:
        return []
    both = times_less(2 * dense, down + summary.uplink_bytes_per_client)
    rows = [["downlink per client", f"{show_bytes(down)} ({times_less(dense, down)} less than dense)"]]
    return [*rows, ["both directions", f"{both} less than dense"]] if compresses_down(summary) else rows


def run_table(summary: Summary, path: str) -> TextTable:
    """One run in a few lines."""
    uplink, metric = summary.uplink_bytes_per_client, summary.metric
    last, final, best, averaged = spreads([summary])
    less = times_less(summary.dense_bytes_per_client, uplink)
    rows = [
        [f"{metric}, final", final],
        [f"{metric}, mean of last {summary.last_count}", last],
        [f"{metric}, {best_of([summary.evaluations])}", best],
        [f"{metric}, averaged model", averaged],
        *([[f"{metric}, server's own model", spread(metric, [summary.server])]] if summary.server is not None else []),
        ["kept", f"{100 * summary.kept_fraction:.3f}%"],
        ["uplink per client", f"{show_bytes(uplink)} ({less} less than dense)"],
        *_down_rows(summary),
        *([["time on the link", show_duration(summary.link_seconds)]] if summary.link_seconds is not None else []),
        ["time", f"{summary.wall_seconds:.1f} s"],
        ["of it, evaluation", f"{100 * summary.evaluation_seconds / summary.wall_seconds:.1f}%"],
        ["peak memory", show_bytes(summary.peak_memory_bytes)],
    ]
    title = f"{label_of(summary.method)} on {summary.task}, seed {summary.seed}"
    return TextTable(title, ["", "value"], rows, f"in {path}; {PICKED}")

"""Run directories and comparisons as sections of a page."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from gammafl.config.layers import result_settings
from gammafl.config.simulation import DIGESTS, AnyConfig
from gammafl.core.errors import InputError
from gammafl.experiments.compare import folder
from gammafl.experiments.results import training_curve
from gammafl.federated.records import Summary
from gammafl.federated.units import show_bytes
from gammafl.files.reading import checked
from gammafl.methods.registry import colours_of, label_of
from gammafl.report.curves import Plot, Series, curves_plot
from gammafl.report.page import Section
from gammafl.report.tables import PICKED, TextTable, best_of, comparison_table, spreads
from gammafl.runs.directory import RunDirectory

POINTS = 300
"""Points of a run's curve on a page of its own, at the most."""


@dataclass(frozen=True)
class Loaded:
    """A run as it is on disk; `summary` is None as long as it is not finished."""

    path: Path
    config: AnyConfig
    summary: Summary | None
    curve: Mapping[str, Sequence[float]]

    def config_text(self) -> str:
        return (self.path / "config.toml").read_text("utf-8")


def is_run(path: Path) -> bool:
    return (path / "config.toml").exists()


def is_comparison(path: Path) -> bool:
    return (path / "comparison.json").exists()


def load(path: Path) -> Loaded:
    directory = RunDirectory(path)
    summary = directory.summary()
    try:
        records = directory.records()
        dim = summary.dim if summary else math.nan  # what was kept is known only as a fraction of a known d
        curve = training_curve(records, dim, POINTS) if records else {}
    except InputError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{directory.ledger_file} is damaged ({type(error).__name__}: {error})") from None
    return Loaded(path, directory.config(), summary, curve)


def comparison_section(path: Path) -> Section:
    """All methods side by side, as `gammafl compare` left them."""
    try:
        summaries = [checked(Summary, table) for table in json.loads((path / "comparison.json").read_text("utf-8"))]
        runs = [load(path / folder(summary.method, summary.seed)) for summary in summaries]
        table = comparison_table("All methods at equal traffic", summaries)
        title = f"Comparison on {summaries[0].task}"
    except InputError:
        raise
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise InputError(f"{path / 'comparison.json'} is damaged ({type(error).__name__}: {error})") from None
    grouped: dict[str, list[Loaded]] = {}
    for summary, run in zip(summaries, runs, strict=True):
        grouped.setdefault(label_of(summary.method), []).append(run)
    return _section(title, grouped, table)


def run_sections(paths: Sequence[Path]) -> list[Section]:
    """A section a task. Runs that differ in nothing but the seed are one curve."""
    runs = [load(path) for path in paths]
    sections = []
    for task in dict.fromkeys(run.config.task for run in runs):
        grouped = _grouped([run for run in runs if run.config.task == task])
        first = next(iter(grouped))
        title = f"{first} on {task}" if len(grouped) == 1 else f"Runs on {task}"
        sections.append(_section(title, grouped, _runs_table(grouped)))
    return sections


def _grouped(runs: Sequence[Loaded]) -> dict[str, list[Loaded]]:
    """Label → runs; a label says the method and in what else the runs differ."""
    tables = [result_settings(run.config) for run in runs]
    keys = dict.fromkeys(key for table in tables for key in table)
    differing = [key for key in keys if len({repr(table.get(key)) for table in tables}) > 1]
    silent = {"seed", "method", *DIGESTS}  # a seed may bring its own data and initial weights
    grouped: dict[str, list[Loaded]] = {}
    for run, table in zip(runs, tables, strict=True):
        others = [key for key in differing if key not in silent and table.get(key) is not None]
        words = [f"{key.rpartition('.')[2]} {table[key]}" for key in others]
        label = ", ".join([label_of(run.config.method), *words])
        if any(other.config.seed == run.config.seed for other in grouped.get(label, [])):
            label = f"{label}, {run.path.name}"  # the same seed again: other data or another model
        grouped.setdefault(label, []).append(run)
    return grouped


def _section(title: str, grouped: Mapping[str, Sequence[Loaded]], table: TextTable) -> Section:
    runs = [run for found in grouped.values() for run in found]
    first = runs[0]
    plot = _plot(grouped, next((run.summary.metric for run in runs if run.summary), "metric"))
    unfinished = sum(run.summary is None for run in runs)
    facts = [
        ("task", first.config.task),
        ("runs", str(len(runs))),
        ("seeds", ", ".join(map(str, sorted({run.config.seed for run in runs})))),
        ("iterations", f"{first.config.iterations:,}"),
        ("clients", f"{first.config.participants} of {first.config.clients} a round"),
        *([("d", f"{first.summary.dim:,}")] if first.summary else []),
    ]
    return Section(
        title,
        warning=f"{unfinished} of {len(runs)} runs are not finished: this is what they came to so far."
        if unfinished
        else "",
        facts=facts,
        plots=[plot] if plot else [],
        tables=[table],
        details=[("Configuration", "\n".join(f"# {run.path.name}\n\n{run.config_text()}" for run in runs))],
    )


def _plot(grouped: Mapping[str, Sequence[Loaded]], metric: str) -> Plot | None:
    """Runs of different length, if any, are cut to the shortest within a label, not between labels."""
    methods = [runs[0].config.method for runs in grouped.values()]
    distinct = len(set(methods)) == len(methods)
    colours = colours_of(methods)
    series = [
        Series(
            {"method": name},
            [run.curve for run in runs],
            colours[method] if distinct else "",
            "dash" if method == "fedavg" else "solid",
        )
        for (name, runs), method in zip(grouped.items(), methods, strict=True)
    ]
    names = {name: name for name in grouped}
    return curves_plot(
        "Curves: mean over seeds, band from least to most", series, {"method": list(grouped)}, names, metric
    )


def _runs_table(grouped: Mapping[str, Sequence[Loaded]]) -> TextTable:
    rows = []
    for name, runs in grouped.items():
        done = [run.summary for run in runs if run.summary]
        if not done:
            rows.append([name, *("–" for _ in range(7))])
            continue
        kept, sent = mean(s.kept_fraction for s in done), mean(s.uplink_bytes_per_client for s in done)
        rows.append([name, str(len(done)), *spreads(done), f"{100 * kept:.3f}%", show_bytes(sent)])
    metric = next((run.summary.metric for runs in grouped.values() for run in runs if run.summary), "metric")
    best = best_of(run.summary.evaluations for runs in grouped.values() for run in runs if run.summary)
    columns = ["run", "seeds", f"{metric}, last", "final", best, "averaged model", "kept", "uplink per client"]
    return TextTable("Runs", columns, rows, f"{PICKED}; uplink measured from encoded messages; ± over seeds")

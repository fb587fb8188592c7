"""`gammafl report`: studies, comparisons and runs, read from their directories, as sections of one page."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gammafl.config.layers import result_settings
from gammafl.config.simulation import DIGESTS, AnyConfig
from gammafl.core.errors import InputError
from gammafl.experiments.columns import Column, GridTable, best, mean_of_seeds, metric, size
from gammafl.experiments.row_charts import curves_panel
from gammafl.experiments.rows import FILE, Row, Rows, training_curve
from gammafl.experiments.store import Studies, study_section
from gammafl.federated.records import Summary
from gammafl.files.atomic import write_atomically
from gammafl.files.disk_errors import storing
from gammafl.methods.registry import label_of
from gammafl.report.page import Section, render
from gammafl.report.tables import PICKED
from gammafl.runs.directory import RunDirectory

CONVERT = "python tools/convert_study_json.py"
POINTS = 300
"""Points of a run's curve on a page of its own, at the most."""


def write_page(paths: Sequence[Path], out: Path, studies: Studies) -> None:
    """The directories `paths` as one page, in their order; single runs are shown together, a section a task."""
    sections = sections_of(paths, studies)
    title = sections[0].title if len(sections) == 1 else f"gammafl: {len(sections)} results"
    page = render(title, sections).encode()
    with storing(out, "run it again"):
        write_atomically(out, page)


def sections_of(paths: Sequence[Path], studies: Studies) -> list[Section]:
    sections = []
    for path in paths:
        if not is_run(path):
            need_rows(path, "no run (config.toml), no comparison and no study (rows.jsonl)")
            sections.append(study_section(path, studies))
    return sections + run_sections([path for path in paths if is_run(path)])


def is_run(path: Path) -> bool:
    return (path / "config.toml").exists() and not (path / FILE).exists()


def need_rows(path: Path, nothing: str) -> None:
    """An error of one line where there are no rows; `nothing` is what the directory does not hold either."""
    if (path / FILE).exists():
        return
    if (path / "study.json").exists():
        how = f"in a clone of the repository, make rows of its study.json with: {CONVERT} {path}"
        raise InputError(f"{path} is of gammafl 0.1; {how}")
    raise InputError(f"{path} holds {nothing}")


@dataclass(frozen=True)
class Loaded:
    """A run as it is on disk; `summary` is None as long as it is not finished."""

    path: Path
    config: AnyConfig
    summary: Summary | None
    curve: Mapping[str, Sequence[float]]

    def config_text(self) -> str:
        return (self.path / "config.toml").read_text("utf-8")


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


def run_sections(paths: Sequence[Path]) -> list[Section]:
    """A section a task. Runs that differ in nothing but the seed are one curve."""
    runs = [load(path) for path in paths]
    sections = []
    for task in dict.fromkeys(run.config.task for run in runs):
        grouped = _grouped([run for run in runs if run.config.task == task])
        first = next(iter(grouped))
        title = f"{first} on {task}" if len(grouped) == 1 else f"Runs on {task}"
        sections.append(_section(title, grouped))
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


def _section(title: str, grouped: Mapping[str, Sequence[Loaded]]) -> Section:
    runs = [run for group in grouped.values() for run in group]
    first = runs[0]
    rows = _rows(grouped)
    curves, table = curves_panel(rows, lambda name: name), RUNS_TABLE(rows)
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
        panels=[curves] if curves else [],
        tables=[table] if table else [],
        details=[("Configuration", "\n".join(f"# {run.path.name}\n\n{run.config_text()}" for run in runs))],
    )


def _rows(grouped: Mapping[str, Sequence[Loaded]]) -> Rows:
    """Runs as rows, whose only factor is what they are called; a run that is not finished has no figures."""
    named = [(name, run) for name, runs in grouped.items() for run in runs]
    metric_of_all = {"metric": next((run.summary.metric for _, run in named if run.summary), "metric")}
    figures = [metric_of_all | (run.summary.table() if run.summary else {}) for _, run in named]
    rows = [
        Row(run.path.name, {"run": name}, run.config.seed, figure, run.curve)
        for (name, run), figure in zip(named, figures, strict=True)
    ]
    return Rows("runs", {"run": list(grouped)}, rows)


RUNS_TABLE = GridTable(
    ("run",),
    (
        Column("seeds", lambda rows, cell: str(len(rows.by_seed("final", **cell)) or "–")),
        metric("last_mean", lambda rows: f"{rows.figure('metric')}, last"),
        metric("final", "final"),
        metric("best", best),
        metric("averaged", "averaged model"),
        mean_of_seeds("kept_fraction", "kept", lambda kept: f"{100 * kept:.3f}%"),
        size("uplink_bytes_per_client", "uplink per client"),
    ),
    f"{PICKED}; uplink measured from encoded messages; ± over seeds",
    name=lambda cell: cell["run"],
    title="Runs",
)

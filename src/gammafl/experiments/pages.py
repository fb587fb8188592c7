"""`gammafl report`: studies, comparisons and runs, read from their directories, as sections of one page."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gammafl.config.layers import flat, result_settings
from gammafl.config.simulation import DIGESTS, AnyConfig
from gammafl.core.errors import InputError
from gammafl.experiments.claims import Part, Verdict, verdicts
from gammafl.experiments.columns import Column, GridTable, best, mean_of_seeds, metric, size
from gammafl.experiments.grid import TASK, Factor, Study
from gammafl.experiments.row_charts import curves_panel
from gammafl.experiments.rows import FILE, Row, Rows, training_curve
from gammafl.experiments.store import QUICK_NOTE, Studies, charts_of, diverged_table, load_rows, own_tables, reading
from gammafl.federated.units import show_bytes
from gammafl.files.atomic import write_atomically
from gammafl.files.disk_errors import storing
from gammafl.methods.registry import label_of
from gammafl.report.page import SIGNS, ClaimCard, Section, render
from gammafl.report.tables import PICKED, SPREAD, TextTable, counts_of
from gammafl.runs.directory import RunDirectory

CONVERT = "python tools/convert_study_json.py"
POINTS = 300
"""The largest number of points in a curve on the page of a single run."""
COMMON = ("iterations", "rounds", "clients", "participants", "dim")
"""Key figures that describe the setting of a run and not its result."""
PARTS_OPEN = 4
"""The parts of a claim are folded if there are more than this. A click opens them."""


def write_page(paths: Sequence[Path], out: Path, studies: Studies) -> None:
    """Writes a page about the directories `paths`, in their order. Single runs come last, with a section per task."""
    sections = sections_of(paths, studies)
    title = sections[0].title if len(sections) == 1 else f"gammafl: {len(sections)} results"
    page = render(title, sections).encode()
    with storing(out, "run it again"):
        write_atomically(out, page)


def sections_of(paths: Sequence[Path], studies: Studies) -> list[Section]:
    """The sections of a page: one for each study or comparison, then one for each task of the single runs."""
    sections = []
    for path in paths:
        if not is_run(path):
            need_rows(path, "no run (config.toml), no comparison and no study (rows.jsonl)")
            with reading(path):
                sections.append(study_section(*load_rows(path, studies)))
    return sections + run_sections([path for path in paths if is_run(path)])


def is_run(path: Path) -> bool:
    return (path / "config.toml").exists() and not (path / FILE).exists()


def need_rows(path: Path, nothing: str) -> None:
    """Raises an `InputError` if `path` has no rows.jsonl; `nothing` says in the message what is missing."""
    if (path / FILE).exists():
        return
    if (path / "study.json").exists():
        how = f"in a clone of the repository, convert its study.json with: {CONVERT} {path}"
        raise InputError(f"{path} was written by gammafl 0.1; {how}")
    raise InputError(f"{path} holds {nothing}; give a directory that a command of gammafl wrote")


def study_section(study: Study, rows: Rows) -> Section:
    panels = [panel for chart in charts_of(study, rows) for panel in chart.panels]
    made = sorted({row.versions for row in rows.all})
    settings = [f"{key} = {value}" for key, value in flat(rows.settings).items()]
    factors = [f"{factor}: {', '.join(levels)}" for factor, levels in rows.levels.items()]
    return Section(
        " · ".join(filter(None, [study.title, rows.about])),
        note="" if rows.quick else study.note,
        warning=QUICK_NOTE if rows.quick else "",
        facts=_facts(study, rows),
        claims=[_card(verdict) for verdict in verdicts(study.claims, rows)],
        panels=[*panels, *filter(None, [curves_panel(rows)])],
        tables=own_tables(study, rows),
        more_tables=[*diverged_table(rows), *([runs_table(rows.finished)] if rows.finished else [])],
        details=[("Versions, settings and factors", "\n".join([*made, *settings, *factors]))],
    )


def _facts(study: Study, rows: Rows) -> list[tuple[str, str]]:
    seeds = ", ".join(map(str, rows.seeds))
    facts = [("study", study.name), ("task", rows.task), ("runs", str(len(rows.finished))), ("seeds", seeds)]
    for key in COMMON:
        values = sorted({row.figures[key] for row in rows.finished if key in row.figures})
        if values:
            facts.append((key, f"{values[0]:,}" if len(values) == 1 else f"{values[0]:,} – {values[-1]:,}"))
    return [(heading, text) for heading, text in facts if text]


def _card(verdict: Verdict) -> ClaimCard:
    claim, parts = verdict.claim, verdict.parts
    counts = Counter(part.answer for part in parts)
    summary = ", ".join(f"{answer}: {counts[answer]}" for answer in SIGNS if counts[answer])  # type: ignore[index]
    hidden = f"{len(parts)} parts; {summary}" if len(parts) > PARTS_OPEN else ""
    seeds = counts_of([part.interval.count for part in parts], "seed")
    evidence = [(f"{one.text()}{_wanted(one.part)}", one.answer) for one in parts]
    return ClaimCard(claim.sentence, claim.source, verdict.answer, seeds, evidence, hidden)


def _wanted(part: Part) -> str:
    """The limit of a part, if the text of the part does not say it."""
    return "" if part.limit and not part.exact else f", wanted {part.side} {part.limit:g}"


def runs_table(rows: Sequence[Row]) -> TextTable:
    """A table with a line for each run: a mean can hide a bad run."""
    lines = []
    for row in rows:
        sent = row.figures.get("uplink_bytes_per_client")
        keys = ("last_mean", "last_loss", "kept_fraction")
        measured = [f"{row.figures[key]:.4g}" if row.figures.get(key) is not None else "–" for key in keys]
        lines.append([row.run, str(row.seed), *measured, "–" if sent is None else show_bytes(sent)])
    columns = ["run", "seed", "metric, last", "loss, last", "kept fraction", "uplink per client"]
    return TextTable(f"All {len(rows)} runs", columns, lines)


@dataclass(frozen=True)
class Loaded:
    """A run as it is on disk. The row of an unfinished run has no results."""

    path: Path
    config: AnyConfig
    row: Row


def load(path: Path) -> Loaded:
    """Reads the run in the directory `path`, finished or not."""
    directory = RunDirectory(path)
    config, summary = directory.config(), directory.summary()
    try:
        records = directory.records()
        dim = summary.dim if summary else math.nan  # without d, the kept fraction is not known
        curve = training_curve(records, dim, POINTS) if records else {}
    except InputError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        what = f"{directory.ledger_file} is damaged ({type(error).__name__}: {error})"
        raise InputError(f"{what}; remove {path} to run it again") from None
    shared = {key: getattr(config, key) for key in ("iterations", "clients", "participants")}
    figures = {**shared, **(summary.table() if summary else {})}
    return Loaded(path, config, Row(path.name, {TASK: config.task}, config.seed, figures, curve))


def run_sections(paths: Sequence[Path]) -> list[Section]:
    """A section for each task. Runs that differ only in their seed share one curve."""
    runs = [load(path) for path in paths]
    tasks = dict.fromkeys(run.config.task for run in runs)
    return [_runs_section(task, [run for run in runs if run.config.task == task]) for task in tasks]


def _runs_section(task: str, runs: Sequence[Loaded]) -> Section:
    """Shows runs as a study whose only factor is the label of the run."""
    labels = _labels(runs)
    known = [run.row.figures for run in runs if "metric" in run.row.figures]
    metric = known[0]["metric"] if known else "metric"
    rows = [
        replace(run.row, cell={TASK: task, "run": label}, figures={"metric": metric, **run.row.figures})
        for run, label in zip(runs, labels, strict=True)
    ]
    levels = list(dict.fromkeys(labels))
    unfinished = len(runs) - len(known)
    configurations = [f"# {run.path.name}\n\n{(run.path / 'config.toml').read_text('utf-8')}" for run in runs]
    section = study_section(RUNS, Rows(RUNS.name, {TASK: [task], "run": levels}, rows))
    return replace(
        section,
        title=f"{levels[0]} on {task}" if len(levels) == 1 else f"Runs on {task}",
        warning=f"{unfinished} of {len(runs)} runs are not finished: this page shows their results so far."
        if unfinished
        else "",
        facts=section.facts[1:],  # without the study's name: single runs have none
        details=[("Configuration", "\n".join(configurations))],
    )


def _labels(runs: Sequence[Loaded]) -> list[str]:
    """The label of each run: its method, and its value of each other setting in which the runs differ."""
    tables = [result_settings(run.config) for run in runs]
    keys = dict.fromkeys(key for table in tables for key in table)
    differing = [key for key in keys if len({repr(table.get(key)) for table in tables}) > 1]
    silent = {"seed", "method", *DIGESTS}  # each seed may have its own data and initial weights, and so its own digests
    labels: list[str] = []
    seen: set[tuple[str, int]] = set()
    for run, table in zip(runs, tables, strict=True):
        others = [key for key in differing if key not in silent and table.get(key) is not None]
        words = [f"{key.rpartition('.')[2]} {table[key]}" for key in others]
        label = ", ".join([label_of(run.config.method), *words])
        if (label, run.config.seed) in seen:
            label = f"{label}, {run.path.name}"  # two runs with one label and seed: they differ in data or model
        seen.add((label, run.config.seed))
        labels.append(label)
    return labels


RUNS = Study(
    "runs",
    "Runs",
    (Factor(TASK, ()), Factor("run", ())),
    tables=(
        GridTable(
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
            f"{PICKED}. Uplink is measured from encoded messages. {SPREAD}.",
            name=lambda cell: cell["run"],
            title="Runs",
        ),
    ),
)

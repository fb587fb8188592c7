"""A study's directory: its rows, the tables as Markdown, the charts, and what a page shows of them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gammafl.config.layers import flat
from gammafl.core.errors import InputError
from gammafl.experiments.claims import Part, Verdict, verdicts
from gammafl.experiments.grid import Study
from gammafl.experiments.row_charts import curves_panel
from gammafl.experiments.rows import FILE, Row, Rows, joined, read_rows, write_rows
from gammafl.experiments.runner import order_of
from gammafl.federated.units import show_bytes
from gammafl.report.charts import Chart, Panel, save
from gammafl.report.page import SIGNS, ClaimCard, Section
from gammafl.report.tables import TextTable, counts_of

if TYPE_CHECKING:
    from gammafl.experiments.runner import Options

QUICK_NOTE = "QUICK: few iterations, to see the machinery work. Quick results prove nothing, whatever the verdicts say."
VERDICT_NOTE = (
    "paired over seeds, Student's t; a claim of several parts holds if all do, and one part refutes it, at 5% after"
    " Holm's correction for their number"
)
COMMON = ("iterations", "rounds", "clients", "participants", "dim")
"""Key figures that belong to what was run, not to what came out."""
PARTS_PRINTED = 6
"""Parts of a claim that a terminal shows; tables.md has all of them."""
PARTS_OPEN = 4
"""Parts of a claim that a page shows without being asked for."""

Studies = Mapping[str, Study]
"""Name → study: these know what their rows say."""


def study_directory(out: Path, study: Study, task: str, quick: bool) -> Path:
    """OUT/table3-logistic-fmnist; a study without tasks has its own name alone, a comparison is OUT itself."""
    if study.alone:
        return out
    return out / "-".join([study.name, *([task] if task else []), *(["quick"] if quick else [])])


def load_rows(path: Path, studies: Studies) -> tuple[Study, Rows]:
    """The rows of a directory and the study that they are of."""

    def factors(name: str) -> Mapping[str, Sequence[str]]:
        if name not in studies:
            raise InputError(f"{path / FILE} is of a study {name!r}, which is not known here")
        return order_of(studies[name])

    with _reading(path):
        rows = read_rows(path, factors)
    return studies[rows.study], rows


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Whatever others wrote into the rows is an error of one line."""
    try:
        yield
    except InputError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise InputError(f"{path / FILE} is damaged or of another version ({type(error).__name__}: {error})") from None


def kept_rows(study: Study, task: str, options: "Options") -> Rows:
    """The rows of this study that are there already."""
    path = study_directory(options.out, study, task, options.quick)
    if not (path / FILE).exists():
        return Rows(study.name, {factor: [] for factor in order_of(study)}, [], options.quick, options.settings)
    rows = load_rows(path, {study.name: study})[1]
    if rows.settings != options.settings and not study.alone:
        given = ", ".join(f"--set {key}={value}" for key, value in flat(rows.settings).items()) or "no --set"
        raise InputError(f"{path} holds rows that were made with {given}; give the same, or choose another --out")
    return rows


def all_rows(study: Study, rows: Rows, before: Rows) -> Rows:
    """What there was and what came: rows are added to a study, or replaced, and never lost."""
    return rows if study.alone else joined(before, rows, order_of(study))


def write_study(path: Path, study: Study, rows: Rows) -> tuple[list[TextTable], list[Path]]:
    """Writes what `rows` say into `path`; returns the tables to print and the pictures drawn."""
    path.mkdir(parents=True, exist_ok=True)
    write_rows(path, rows)
    return draw_study(path, study, rows)


def draw_study(path: Path, study: Study, rows: Rows) -> tuple[list[TextTable], list[Path]]:
    """tables.md and the pictures, from the rows alone."""
    (path / "tables.md").write_text(tables_text(study, rows), "utf-8")
    pictures = [file for chart in charts_of(study, rows) for file in save(chart, path)]
    return study_tables(study, rows, PARTS_PRINTED), pictures


def tables_text(study: Study, rows: Rows) -> str:
    """tables.md."""
    notes = [QUICK_NOTE, ""] if rows.quick else []
    if rows.settings:
        notes += ["Not the study's own: " + ", ".join(f"{k} = {v}" for k, v in flat(rows.settings).items()), ""]
    return "\n".join([*notes, *(table.markdown() for table in study_tables(study, rows))])


def study_tables(study: Study, rows: Rows, parts: int | None = None) -> list[TextTable]:
    """The study's own, the runs that diverged, and the verdicts with at most this many of their `parts`."""
    judged = verdicts(study.claims, rows)
    return [
        *own_tables(study, rows),
        *diverged_table(rows),
        *([verdict_table(study, judged, rows, parts)] if judged else []),
    ]


def own_tables(study: Study, rows: Rows) -> list[TextTable]:
    return [table for make in study.tables if (table := make(rows)) is not None]


def charts_of(study: Study, rows: Rows) -> list[Chart]:
    return [chart for make in study.charts if (chart := make(rows)) is not None] if rows.finished else []


def diverged_table(rows: Rows) -> list[TextTable]:
    """The runs without a result, if there are any."""
    lines = [[row.run, row.diverged] for row in rows.all if row.diverged]
    note = "missing above; claims about them are not decided"
    return [TextTable("runs that diverged", ["run", "what happened"], lines, note, prose=True)] if lines else []


def verdict_table(study: Study, judged: Sequence[Verdict], rows: Rows, parts: int | None = None) -> TextTable:
    lines = []
    for verdict in judged:
        texts = [part.text() for part in verdict.parts]
        left = len(texts) - parts if parts is not None and len(texts) > parts else 0
        shown = [*texts[:parts], f"… and {left} more in tables.md"] if left else texts
        lines.append([f"{verdict.claim.sentence} ({verdict.claim.source})", verdict.answer, "; ".join(shown)])
    on = f" on {rows.task}" if rows.task else ""
    return TextTable(
        f"{study.name}{on}: what the paper says, and what we see",
        ["claim", "verdict", "evidence: mean [95% interval over seeds]"],
        lines,
        QUICK_NOTE if rows.quick else VERDICT_NOTE,
        prose=True,
    )


def study_section(path: Path, studies: Studies) -> Section:
    """What the rows of a directory say, as a section of a page."""
    study, rows = load_rows(path, studies)
    with _reading(path):
        return _section(study, rows)


def _section(study: Study, rows: Rows) -> Section:
    panels = [panel for chart in charts_of(study, rows) for panel in _titled(chart)]
    made = sorted({row.versions for row in rows.all})
    settings = [f"{key} = {value}" for key, value in flat(rows.settings).items()]
    factors = [f"{factor}: {', '.join(levels)}" for factor, levels in rows.levels.items()]
    return Section(
        " · ".join(filter(None, [study.title, rows.task])),
        note="" if rows.quick else study.note,
        warning=QUICK_NOTE if rows.quick else "",
        facts=_facts(study, rows),
        claims=[_card(verdict) for verdict in verdicts(study.claims, rows)],
        panels=[*panels, *filter(None, [curves_panel(rows)])],
        tables=own_tables(study, rows),
        more_tables=[*diverged_table(rows), *([runs_table(rows.finished)] if rows.finished else [])],
        details=[("Versions, settings and factors", "\n".join([*made, *settings, *factors]))],
    )


def _titled(chart: Chart) -> list[Panel]:
    """The panels of a chart; the only one has the chart's title."""
    if len(chart.panels) == 1 and not chart.panels[0].title:
        return [replace(chart.panels[0], title=chart.title)]
    return list(chart.panels)


def _facts(study: Study, rows: Rows) -> list[tuple[str, str]]:
    task = [("task", rows.task)] if rows.task else []
    facts = [("study", study.name), *task, ("runs", str(len(rows.finished)))]
    if rows.finished:
        facts.append(("seeds", ", ".join(map(str, rows.seeds))))
    for key in COMMON:
        values = sorted({row.figures[key] for row in rows.finished if key in row.figures})
        if values:
            facts.append((key, f"{values[0]:,}" if len(values) == 1 else f"{values[0]:,} – {values[-1]:,}"))
    return facts


def _card(verdict: Verdict) -> ClaimCard:
    claim, parts = verdict.claim, verdict.parts
    counts = Counter(part.answer for part in parts)
    summary = ", ".join(f"{answer}: {counts[answer]}" for answer in SIGNS if counts[answer])  # type: ignore[index]
    hidden = f"{len(parts)} parts; {summary}" if len(parts) > PARTS_OPEN else ""
    seeds = counts_of([part.interval.count for part in parts], "seed")
    evidence = [(f"{one.text()}{_wanted(one.part)}", one.answer) for one in parts]
    return ClaimCard(claim.sentence, claim.source, verdict.answer, seeds, evidence, hidden)


def _wanted(part: Part) -> str:
    """Where the text of a part does not say it."""
    return "" if part.limit and not part.exact else f", wanted {part.side} {part.limit:g}"


def runs_table(rows: Sequence[Row]) -> TextTable:
    """A line a run, so that nothing hides in a mean."""
    lines = []
    for row in rows:
        sent = row.figures.get("uplink_bytes_per_client")
        keys = ("last_mean", "last_loss", "kept_fraction")
        measured = [f"{row.figures[key]:.4g}" if row.figures.get(key) is not None else "–" for key in keys]
        lines.append([row.run, str(row.seed), *measured, "–" if sent is None else show_bytes(sent)])
    columns = ["run", "seed", "metric, last", "loss, last", "kept fraction", "uplink per client"]
    return TextTable(f"All {len(rows)} runs", columns, lines)

"""A study's directory: its rows, the tables as Markdown, and the charts."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gammafl.config.layers import flat
from gammafl.config.presets import PRESET
from gammafl.core.errors import InputError
from gammafl.experiments.claims import Verdict, verdicts
from gammafl.experiments.grid import Study
from gammafl.experiments.rows import FILE, Row, Rows, joined, read_rows, write_rows
from gammafl.experiments.runner import order_of
from gammafl.report.charts import Chart, save
from gammafl.report.tables import TextTable

if TYPE_CHECKING:
    from gammafl.experiments.runner import Options

QUICK_NOTE = "QUICK: few iterations, to see that it works. Quick results prove nothing, whatever the verdicts say."
VERDICT_NOTE = (
    "Evidence is paired over seeds and judged by Student's t. A claim of several parts holds if all of them hold. One"
    " part refutes it, at the 5% level after Holm's correction for the number of parts."
)
PARTS_PRINTED = 6
"""Parts of a claim that a terminal shows; tables.md has all of them."""

Studies = Mapping[str, Study]
"""Name → study. It says which tables, charts and claims belong to rows of this name."""


def study_directory(options: "Options", study: Study, task: str) -> Path:
    """The directory of results: OUT/table3-logistic-fmnist, with the preset's name if any; OUT for a comparison."""
    words = [study.name, task, options.settings.get(PRESET), "quick" if options.quick else ""]
    return options.out if study.alone else options.out / "-".join(filter(None, words))


def load_rows(path: Path, studies: Studies) -> tuple[Study, Rows]:
    """Reads the rows in a directory. Returns their study and the rows."""

    def factors(name: str) -> Mapping[str, Sequence[str]]:
        if name not in studies:
            what = f"{path / FILE} is of a study {name!r}, which this version does not know"
            raise InputError(f"{what}; read it with the version that made it")
        return order_of(studies[name])

    with reading(path):
        rows = read_rows(path, factors)
    return studies[rows.study], rows


def rows_by_run(paths: Sequence[Path], studies: Studies) -> dict[str, Row]:
    """Name of a run → its row, for the finished runs in these directories.

    Rows of version 0.1 are left out: a run's name says how its settings differ from those of its task, and these were
    others in version 0.1.
    """
    rows = [row for path in paths for row in load_rows(path, studies)[1].finished]
    return {row.run: row for row in rows if row.config}


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns any error about the content of rows.jsonl, which others may have written, into an `InputError`."""
    try:
        yield
    except InputError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        what = f"{path / FILE} is damaged or of another version ({type(error).__name__}: {error})"
        raise InputError(f"{what}; restore the file, or remove it and make the results again") from None


def kept_rows(study: Study, task: str, options: "Options") -> Rows:
    """The rows that the results of this study have already."""
    path = study_directory(options, study, task)
    if not (path / FILE).exists():
        return Rows(study.name, {factor: [] for factor in order_of(study)}, [], options.quick, options.settings)
    rows = load_rows(path, {study.name: study})[1]
    if rows.settings != options.settings and not study.alone:
        given = ", ".join(f"--set {key}={value}" for key, value in flat(rows.settings).items()) or "no --set"
        raise InputError(f"{path} holds rows that were made with {given}; give the same, or choose another --out")
    return rows


def all_rows(study: Study, rows: Rows, before: Rows) -> Rows:
    """The rows of `before` and the new `rows`, which win. Only a study of the command line drops its earlier rows."""
    return rows if study.alone else joined(before, rows, order_of(study))


def write_study(path: Path, study: Study, rows: Rows) -> tuple[list[TextTable], list[Path]]:
    """Writes `rows`, their tables and pictures into `path`. Returns the tables to print and the files of pictures."""
    path.mkdir(parents=True, exist_ok=True)
    write_rows(path, rows)
    return draw_study(path, study, rows)


def draw_study(path: Path, study: Study, rows: Rows) -> tuple[list[TextTable], list[Path]]:
    """Writes tables.md and the pictures from the rows alone. Returns the tables to print and the files of pictures."""
    (path / "tables.md").write_text(tables_text(study, rows), "utf-8")
    pictures = [file for chart in charts_of(study, rows) for file in save(chart, path)]
    return study_tables(study, rows, PARTS_PRINTED), pictures


def tables_text(study: Study, rows: Rows) -> str:
    """The text of tables.md."""
    notes = [QUICK_NOTE, ""] if rows.quick else []
    if rows.settings:
        notes += ["Changed settings: " + ", ".join(f"{k} = {v}" for k, v in flat(rows.settings).items()), ""]
    return "\n".join([*notes, *(table.markdown() for table in study_tables(study, rows))])


def study_tables(study: Study, rows: Rows, parts: int | None = None) -> list[TextTable]:
    """The study's own tables, the runs that diverged, and the verdicts, each with at most `parts` parts."""
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
    """A table of the runs that diverged, if there are any."""
    lines = [[row.run, row.diverged] for row in rows.all if row.diverged]
    note = "The tables above lack these runs. Claims about them are not decided."
    return [TextTable("runs that diverged", ["run", "what happened"], lines, note, prose=True)] if lines else []


def verdict_table(study: Study, judged: Sequence[Verdict], rows: Rows, parts: int | None = None) -> TextTable:
    """A table of claims with their verdicts and evidence: at most `parts` parts for each, or all of them."""
    lines = []
    for verdict in judged:
        texts = [part.text() for part in verdict.parts]
        left = len(texts) - parts if parts is not None and len(texts) > parts else 0
        shown = [*texts[:parts], f"… and {left} more in tables.md"] if left else texts
        lines.append([f"{verdict.claim.sentence} ({verdict.claim.source})", verdict.answer, "; ".join(shown)])
    on = f" on {rows.about}" if rows.about else ""
    return TextTable(
        f"{study.name}{on}: what the paper says, and what we see",
        ["claim", "verdict", "evidence: mean [95% interval over seeds]"],
        lines,
        QUICK_NOTE if rows.quick else VERDICT_NOTE,
        prose=True,
    )

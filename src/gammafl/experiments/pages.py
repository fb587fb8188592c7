"""`gammafl report`: studies, comparisons and runs, read from their directories, as sections of one page."""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from gammafl.core.errors import InputError
from gammafl.experiments.grid import Study
from gammafl.experiments.levels import colour
from gammafl.experiments.results import Results, Run
from gammafl.experiments.run_sections import comparison_section, is_comparison, is_run, run_sections
from gammafl.experiments.store import diverged_table, read_document, read_results
from gammafl.federated.units import show_bytes
from gammafl.files.atomic import write_atomically
from gammafl.files.disk_errors import storing
from gammafl.methods.registry import label_of, names
from gammafl.report.curves import IN_LEGEND, Plot, Series, curves_plot
from gammafl.report.interactive import plots_of
from gammafl.report.page import Section, render
from gammafl.report.tables import TextTable

COMMON = ("iterations", "rounds", "clients", "participants", "dim")
"""Key figures that belong to what was run, not to what came out."""


Studies = Mapping[str, Study]
"""Name → study: these know which pictures their results make."""


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
        if (path / "study.json").exists():
            sections.append(study_section(path / "study.json", studies))
        elif is_comparison(path):
            sections.append(comparison_section(path))
        elif not is_run(path):
            raise InputError(f"{path} holds no run (config.toml), no comparison and no study (study.json)")
    return sections + run_sections([path for path in paths if is_run(path) and not (path / "study.json").exists()])


def study_section(file: Path, studies: Studies) -> Section:
    """What study.json says; pictures are made anew from its numbers."""
    try:
        document = read_document(file)
        results = read_results(document)
        return _study_section(document, results, studies.get(results.study))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{file} is damaged or of another version ({type(error).__name__}: {error})") from None


def _study_section(document: Mapping[str, Any], results: Results, study: Study | None) -> Section:
    pictures = study.pictures(results) if study and results.runs else []
    curves = study_curves(results)
    on = f" · {results.task}" if results.task else ""
    made = {"versions": document["versions"], "settings of all runs": document["settings"], "factors": results.levels}
    return Section(
        f"{document['title']}{on}",
        "" if results.quick else document["note"],
        document["note"] if results.quick else "",
        _facts(results),
        document["claims"],
        [*(plot for picture in pictures for plot in plots_of(picture)), *([curves] if curves else [])],
        [TextTable(t["title"], t["columns"], t["rows"], t["note"]) for t in document["tables"]],
        [*diverged_table(results), *([runs_table(results.runs)] if results.runs else [])],
        [("Versions, settings and factors", json.dumps(made, indent=1, ensure_ascii=False))],
    )


def study_curves(results: Results) -> Plot | None:
    """The curves of all places of the grid, in the order of the grid, each over its seeds."""
    cells = (dict(zip(results.levels, place, strict=True)) for place in product(*results.levels.values()))
    series = [
        Series(cell, [run.curve for run in runs], colour(cell.get("method", "")), _dash(cell))
        for cell in cells
        if (runs := results.pick(**cell))
    ]
    names = {level: method_name(level) for factor in IN_LEGEND for level in results.levels.get(factor, ())}
    metric = next((str(run.figures["metric"]) for run in results.runs if "metric" in run.figures), "metric")
    title = "Training curves: mean over seeds, band from least to most"
    return curves_plot(title, series, results.levels, names, metric)


def method_name(level: str) -> str:
    """'Top-k, equal traffic' for 'top-k, equal traffic'; a level that is no method keeps its name."""
    found = re.match(r"[\w-]+", level)
    name = found[0] if found else ""
    return label_of(name) + level[len(name) :] if name in names() else level


def _dash(cell: Mapping[str, str]) -> str:
    return "dash" if "fedavg" in cell.values() else "solid"


def _facts(results: Results) -> list[tuple[str, str]]:
    facts = [("study", results.study), ("task", results.task or "–"), ("runs", str(len(results.runs)))]
    if results.runs:
        facts.append(("seeds", ", ".join(map(str, results.seeds))))
    for key in COMMON:
        found = sorted({run.figures[key] for run in results.runs if key in run.figures})
        if found:
            facts.append((key, f"{found[0]:,}" if len(found) == 1 else f"{found[0]:,} – {found[-1]:,}"))
    return facts


def runs_table(runs: Sequence[Run]) -> TextTable:
    """A row a run, so that nothing hides in a mean."""
    rows = []
    for run in runs:
        figures = run.figures
        sent = figures.get("uplink_bytes_per_client")
        measured = [
            f"{figures[key]:.4g}" if key in figures else "–" for key in ("last_mean", "last_loss", "kept_fraction")
        ]
        rows.append([run.name, str(run.seed), *measured, "–" if sent is None else show_bytes(sent)])
    columns = ["run", "seed", "metric, last", "loss, last", "kept fraction", "uplink per client"]
    return TextTable(f"All {len(runs)} runs", columns, rows)

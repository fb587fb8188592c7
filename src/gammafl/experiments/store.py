"""A study's directory: study.json, the tables as Markdown, and the pictures."""

import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gammafl.config.layers import flat
from gammafl.experiments.claims import Claim, Verdict, judge
from gammafl.experiments.grid import Study, kin
from gammafl.experiments.results import Results, Run
from gammafl.experiments.study_facts import StudyFacts
from gammafl.files.atomic import write_atomically
from gammafl.files.reading import checked
from gammafl.report.tables import TextTable

QUICK_NOTE = "QUICK: few iterations, to see the machinery work. Quick results prove nothing, whatever the verdicts say."
PACKAGES = ("gammafl", "numpy", "numba", "torch")


def study_directory(out: Path, study: Study, task: str, quick: bool) -> Path:
    """OUT/table3-logistic-fmnist; a study without tasks has its own name alone."""
    return out / "-".join([study.name, *([task] if task else []), *(["quick"] if quick else [])])


def verdicts(study: Study, results: Results) -> list[Verdict]:
    return [judge(claim, results) for claim in study.claims if applies(claim, results.task)]


def applies(claim: Claim, task: str) -> bool:
    return not claim.tasks or kin(task) in claim.tasks


def write_study(
    path: Path, study: Study, results: Results, settings: Mapping[str, Any]
) -> tuple[list[TextTable], list[Path]]:
    """Writes what `results` say into `path`; returns the tables to print and the pictures drawn."""
    from gammafl.report.figures import draw  # loads matplotlib

    path.mkdir(parents=True, exist_ok=True)
    judged = verdicts(study, results)
    shown = study.tables(results)
    document = to_json(study, results, judged, shown, settings)
    write_atomically(path / "study.json", _text(document).encode())
    tables = [*shown, *diverged_table(results), verdict_table(study, judged, results)]
    notes = [QUICK_NOTE, ""] if results.quick else []
    if settings:
        notes += ["Not the study's own: " + ", ".join(f"{key} = {value}" for key, value in flat(settings).items()), ""]
    (path / "tables.md").write_text("\n".join([*notes, *(table.markdown() for table in tables)]), "utf-8")
    return tables, [file for picture in study.pictures(results) for file in draw(picture, path)]


def _text(document: Mapping[str, Any]) -> str:
    """JSON with a line a run, which is small and still shows in a diff what changed."""
    runs = ",\n  ".join(json.dumps(run, ensure_ascii=False) for run in document["runs"])
    head = json.dumps({key: value for key, value in document.items() if key != "runs"}, ensure_ascii=False, indent=1)
    return f'{head[:-2]},\n "runs": [\n  {runs}\n ]\n}}\n'


def to_json(
    study: Study, results: Results, judged: Sequence[Verdict], tables: Sequence[TextTable], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """All that a report needs; `read_results` is the way back."""
    return {
        "study": study.name,
        "title": study.title,
        "task": results.task,
        "quick": results.quick,
        "note": QUICK_NOTE if results.quick else study.note,
        "settings": dict(settings),
        "seeds": results.seeds,
        "factors": results.levels,
        "claims": [_verdict_json(verdict) for verdict in judged],
        "tables": [{"title": t.title, "columns": t.columns, "rows": t.rows, "note": t.note} for t in tables],
        "diverged": dict(results.diverged),
        "runs": [
            {"name": r.name, "cell": r.cell, "seed": r.seed, "figures": r.figures, "curve": r.curve}
            for r in results.runs
        ],
        "versions": versions(),
    }


def read_document(path: Path) -> dict[str, Any]:
    """What a study.json says; a `ValueError` if it does not say what it must."""
    document: dict[str, Any] = json.loads(path.read_text("utf-8"))
    checked(StudyFacts, document)
    return document


def read_results(document: Mapping[str, Any]) -> Results:
    """The results in a study.json."""
    return Results(
        document["study"],
        document["task"],
        document["quick"],
        document["factors"],
        [Run(**run) for run in document["runs"]],
        document.get("diverged", {}),
    )


def _verdict_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "claim": verdict.claim.sentence,
        "source": verdict.claim.source,
        "verdict": verdict.answer,
        "parts": [
            {
                "label": judged.part.label,
                "verdict": judged.answer,
                "mean": _finite(judged.found.mean),
                "low": _finite(judged.found.low),
                "high": _finite(judged.found.high),
                "seeds": sorted(judged.part.samples),
                "wanted": f"{judged.part.side} {judged.part.limit:g}",
                "unit": judged.part.unit,
                "paper": judged.part.paper,
            }
            for judged in verdict.parts
        ],
    }


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None  # NaN compares false too


def diverged_table(results: Results) -> list[TextTable]:
    """The runs without a result, if there are any."""
    rows = [[name, why] for name, why in results.diverged.items()]
    note = "missing above, with the runs that were to keep as much as they; claims about them are not decided"
    return [TextTable("runs that diverged", ["run", "what happened"], rows, note, prose=True)] if rows else []


def verdict_table(study: Study, judged: Sequence[Verdict], results: Results) -> TextTable:
    rows = []
    for verdict in judged:
        texts = [part.text() for part in verdict.parts]
        shown = texts if len(texts) <= 6 else [*texts[:6], f"… and {len(texts) - 6} more in study.json"]
        rows.append([f"{verdict.claim.sentence} ({verdict.claim.source})", verdict.answer, "; ".join(shown)])
    on = f" on {results.task}" if results.task else ""
    return TextTable(
        f"{study.name}{on}: what the paper says, and what we see",
        ["claim", "verdict", "evidence: mean [95% interval over seeds]"],
        rows,
        QUICK_NOTE if results.quick else "paired over seeds, Student's t; a claim of several parts holds if all do",
        prose=True,
    )


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found

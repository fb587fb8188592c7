"""What is committed in results/ is what its rows give."""

import json
from pathlib import Path

import pytest

from gammafl.experiments.claims import verdicts
from gammafl.experiments.runner import Options, plan_campaign
from gammafl.experiments.store import charts_of, load_rows, own_tables, tables_text
from gammafl.paper.catalogue import KNOWN
from tools.convert_study_json import rows_of_study_json

RESULTS = sorted(path.parent for path in Path(__file__).parents[2].glob("results/*/rows.jsonl"))


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.name)
def test_the_committed_tables_are_those_of_the_committed_rows(path: Path) -> None:
    study, rows = load_rows(path, KNOWN)
    assert (path / "tables.md").read_text("utf-8") == tables_text(study, rows)


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.name)
def test_every_committed_picture_is_one_that_its_rows_draw(path: Path) -> None:
    study, rows = load_rows(path, KNOWN)
    drawn = {f"{chart.name}{kind}" for chart in charts_of(study, rows) for kind in (".png", ".svg")}
    assert {file.name for file in path.iterdir() if file.suffix in (".png", ".svg")} == drawn


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.name)
def test_accuracies_are_shown_in_all_four_readings(path: Path) -> None:
    """Final, mean of the last, averaged model and best: each is what a paper may mean."""
    study, rows = load_rows(path, KNOWN)
    if rows.figure("last_mean") is None:
        return  # nothing was trained
    shown = [" ".join(table.columns) for table in own_tables(study, rows)]
    assert any(all(word in text for word in ("final", "last", "averaged", "best")) for text in shown)


TRAINED = [path for path in RESULTS if path.name.partition("-")[0] not in ("compare", "cost", "pareto")]
"""Studies whose grid is not made on the command line."""


@pytest.mark.parametrize("path", TRAINED, ids=lambda path: path.name)
def test_a_study_over_committed_rows_runs_only_what_has_none(path: Path) -> None:
    study, rows = load_rows(path, KNOWN)
    options = Options(path.parent, tuple(rows.seeds), only=rows.levels, settings=rows.settings)
    campaign = plan_campaign(study, options)
    campaign.ready()
    assert len(campaign.trials) - campaign.unfinished() == len(rows.finished)


def test_a_study_json_of_an_earlier_version_becomes_rows_with_the_same_verdicts(tmp_path: Path) -> None:
    """Also its runs that diverged, which it had by name alone."""
    study, rows = load_rows(next(path for path in RESULTS if path.name == "fig2-cnn-cifar10"), KNOWN)
    document = {
        "study": rows.study,
        "task": rows.task,
        "quick": rows.quick,
        "settings": rows.settings,
        "seeds": rows.seeds,
        "versions": {"gammafl": "0.1.0"},
        "diverged": {row.run: row.diverged for row in rows.all if row.diverged},
        "runs": [
            {"name": row.run, "cell": {k: v for k, v in row.cell.items() if k != "task"}, "seed": row.seed}
            | {"figures": row.figures, "curve": row.curve}
            for row in rows.finished
        ],
    }
    (tmp_path / "study.json").write_text(json.dumps(document))
    converted = rows_of_study_json(tmp_path, KNOWN)
    assert converted.levels == rows.levels
    assert {(row.run, tuple(row.cell.items())) for row in converted.all} == {
        (row.run, tuple(row.cell.items())) for row in rows.all
    }
    assert [(v.answer, v.parts) for v in verdicts(study.claims, converted)] == [
        (v.answer, v.parts) for v in verdicts(study.claims, rows)
    ]

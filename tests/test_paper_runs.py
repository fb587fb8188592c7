"""`make paper`: its commands can be given, and finished runs come into results/ and are not run again."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gammafl.cli import studies
from gammafl.cli.main import app
from gammafl.experiments.store import study_directory
from tools import paper_runs

TINY = "table3 --task logistic-mini --quick --only classes=2 --only method=fedavg --seeds 0"


@pytest.mark.parametrize("command", paper_runs.COMMANDS)
def test_a_command_can_be_given_and_its_results_are_where_they_are_looked_for(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaigns: list[Any] = []
    monkeypatch.setattr(studies, "run_and_show", lambda campaign, again: campaigns.append(campaign))
    words = paper_runs.arguments(command, 1)[3:]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    (campaign,) = campaigns
    (task,) = campaign.tasks
    assert campaign.trials
    assert campaign.options.settings == paper_runs.changes(command)
    assert study_directory(campaign.options, campaign.whole, task) == paper_runs.OUT / paper_runs.place(command)


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("results", "out"):
        monkeypatch.setattr(paper_runs, name.upper(), tmp_path / name)
    monkeypatch.setattr(paper_runs, "place", lambda command: "table3-logistic-mini-quick")
    return tmp_path / "results" / "table3-logistic-mini-quick"


def test_finished_runs_come_into_results_and_are_not_run_again(folders: Path) -> None:
    assert paper_runs.run(TINY, 1, until=float("inf")) == 0
    rows = (folders / "rows.jsonl").read_text()
    assert (folders / "tables.md").exists()
    shutil.rmtree(paper_runs.OUT)  # as on another machine
    assert paper_runs.run(TINY, 1, until=float("inf")) == 0
    assert (folders / "rows.jsonl").read_text() == rows, "times would differ"
    assert not list((paper_runs.OUT / "runs").glob("*"))


def test_results_of_other_settings_stay_until_the_command_has_finished(folders: Path) -> None:
    folders.mkdir(parents=True)
    other = json.dumps({"study": "table3", "settings": {"iterations": 7}})
    (folders / "rows.jsonl").write_text(other)
    assert paper_runs.run(TINY, 1, until=0.0) is None
    assert (folders / "rows.jsonl").read_text() == other
    assert paper_runs.run(TINY, 1, until=float("inf")) == 0
    assert (folders / "rows.jsonl").read_text() != other

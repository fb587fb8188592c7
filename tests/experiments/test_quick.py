"""Every study by its command, at a tiny size on the data that come with the package."""

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from gammafl.experiments.claims import FAILS, HOLDS, OPEN
from gammafl.paper.catalogue import STUDIES
from tests.test_cli import gammafl

TINY = ["--set", "iterations=10", "--set", "evaluation.every=1"]
PICTURES = {name: [f"{name}.png", f"{name}.svg"] for name in STUDIES if name != "table2"}
MINI = [name for name, study in STUDIES.items() if (tasks := study.factor("task")) and "logistic-mini" in tasks.names]


def rows_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "rows.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One place for all studies: they share runs."""
    return tmp_path_factory.mktemp("studies")


@pytest.mark.parametrize("name", MINI)
def test_a_training_study_runs_judges_and_draws(name: str, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["study", name, "--quick", "--task", "logistic-mini", "--jobs", "1", "--out", str(out), *TINY]
    code, printed, err = gammafl(*command, capsys=capsys)
    assert (code, err) == (0, "")
    assert printed.count("Quick results prove nothing") >= 2
    path = out / f"{name}-logistic-mini-quick"
    rows = rows_in(path)
    assert {row["seed"] for row in rows} == {0, 1}
    assert rows[0]["curves"]["iteration"][-1] == 10
    tables = (path / "tables.md").read_text()
    claims = [claim for claim in STUDIES[name].claims if not claim.tasks or "logistic-mini" in claim.tasks]
    for claim in claims:
        answer = re.search(re.escape(f"| {claim.sentence} ({claim.source}) | ") + r"([\w ]+) \|", tables)
        assert answer is not None
        assert answer[1] in (HOLDS, FAILS, OPEN)
    assert sorted(p.name for p in path.iterdir() if p.suffix in (".png", ".svg")) == PICTURES[name]
    assert claims[0].sentence in unescape((path / "report.html").read_text())


def test_table2_needs_no_runs(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, printed, _ = gammafl("study", "table2", "--out", str(out), capsys=capsys)
    assert code == 0
    assert "nothing to run" in printed
    assert printed.count("9.02e-03") == 1
    assert not (out / "table2/runs").exists()
    assert len(rows_in(out / "table2")) == 4


def test_theory_runs_on_both_problems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["study", "theory", "--quick", "--jobs", "1", "--out", str(tmp_path), "--seeds", "0"]
    code, printed, _ = gammafl(*command, capsys=capsys)
    assert code == 0
    assert "bound, FedAVG" in printed
    for task in ("strongly-convex", "non-convex"):
        assert len(rows_in(tmp_path / f"theory-{task}-quick")) == 5 * 2
    code, printed, _ = gammafl(*command, capsys=capsys)
    assert "20 runs, 20 finished; nothing to run" in printed


def test_the_list_names_every_study(capsys: pytest.CaptureFixture[str]) -> None:
    code, printed, _ = gammafl("study", "list", capsys=capsys)
    assert code == 0
    assert all(name in printed for name in STUDIES)


def test_collect_shows_what_is_finished_and_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["study", "alpha", "--quick", "--task", "logistic-mini", "--collect", "--out", str(tmp_path), *TINY]
    code, _, err = gammafl(*command, capsys=capsys)
    assert (code, "nothing of alpha is finished" in err) == (2, True)
    assert not list(tmp_path.iterdir())
    assert gammafl(*(word for word in command if word != "--collect"), capsys=capsys)[0] == 0
    code, printed, _ = gammafl(*command, capsys=capsys)
    assert code == 0
    assert "16 runs, 16 finished" in printed
    assert "Changed settings: iterations = 10" in (tmp_path / "alpha-logistic-mini-quick/tables.md").read_text()

"""Every study by its command, at a tiny size on the data that come with the package."""

import json
from html import unescape
from pathlib import Path

import pytest

from gammafl.paper.catalogue import STUDIES
from tests.test_cli import gammafl

TINY = ["--set", "iterations=10", "--set", "evaluation.every=1"]
PICTURES = {name: [f"{name}.png", f"{name}.svg"] for name in STUDIES if name != "table2"}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One place for all studies: they share runs."""
    return tmp_path_factory.mktemp("studies")


@pytest.mark.parametrize("name", [name for name, study in STUDIES.items() if "logistic-mini" in study.further_tasks])
def test_a_training_study_runs_judges_and_draws(name: str, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["study", name, "--quick", "--task", "logistic-mini", "--jobs", "1", "--out", str(out), *TINY]
    code, printed, err = gammafl(*command, capsys=capsys)
    assert (code, err) == (0, "")
    assert printed.count("Quick results prove nothing") >= 2
    path = out / f"{name}-logistic-mini-quick"
    document = json.loads((path / "study.json").read_text())
    assert document["seeds"] == [0, 1]
    assert {claim["verdict"] for claim in document["claims"]} <= {
        "holds",
        "does not hold",
        "not decided at this noise",
    }
    assert document["runs"][0]["curve"]["iteration"][-1] == 10
    assert sorted(p.name for p in path.iterdir() if p.suffix in (".png", ".svg")) == PICTURES[name]
    assert document["claims"][0]["claim"] in unescape((path / "report.html").read_text())


def test_table2_needs_no_runs(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, printed, _ = gammafl("study", "table2", "--out", str(out), capsys=capsys)
    assert code == 0
    assert "nothing to run" in printed
    assert printed.count("9.02e-03") == 1
    assert not (out / "table2/runs").exists()


def test_theory_runs_on_both_problems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["study", "theory", "--quick", "--jobs", "1", "--out", str(tmp_path), "--seeds", "0"]
    code, printed, _ = gammafl(*command, capsys=capsys)
    assert code == 0
    assert "bound, FedAVG" in printed
    for task in ("strongly-convex", "non-convex"):
        document = json.loads((tmp_path / f"theory-{task}-quick/study.json").read_text())
        assert len(document["runs"]) == 5 * 2
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
    assert "Not the study's own: iterations = 10" in (tmp_path / "alpha-logistic-mini-quick/tables.md").read_text()

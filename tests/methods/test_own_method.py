"""A method in one file of the user's own works everywhere, with no other file touched."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gammafl as gf
from gammafl.methods.files import function_in_file
from tests.flower.problem import run as run_flower
from tests.methods.own_file import OWN
from tests.problems import Quadratic, blobs
from tests.test_cli import QUICK, gammafl

NAME = "own.py:every_nth"


@pytest.fixture(autouse=True)
def _file(in_tmp: Path) -> None:
    (in_tmp / "own.py").write_text(OWN)


def test_on_the_command_line(in_tmp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, _ = gammafl("run", "logistic-mini", "--method", f"{NAME}:n=10", *QUICK, "--out", "r", capsys=capsys)
    assert code == 0
    code, out, _ = gammafl("run", "--config", "r/config.toml", "--out", "again", capsys=capsys)
    assert (code, "every nth on logistic-mini" in out) == (0, True)
    assert (in_tmp / "r/rounds.jsonl").read_bytes() == (in_tmp / "again/rounds.jsonl").read_bytes()
    (in_tmp / "own.py").write_text(OWN + "\n")
    code, _, err = gammafl("run", "--config", "r/config.toml", "--out", "r", "--resume", capsys=capsys)
    assert (code, "own.py has changed" in err) == (2, True)


def test_in_a_comparison_and_its_page(in_tmp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    methods = f"gamma-fedht,{NAME}:n=10,top-k:keep=0.02,scope=tensor"
    code, out, _ = gammafl("compare", "logistic-mini", "--methods", methods, *QUICK, "--out", "c", capsys=capsys)
    assert code == 0
    for label in ("γ-FedHT", "every nth, n=10", "Top-k, keep=0.02, scope=tensor"):
        assert label in out
    assert (in_tmp / "c/comparison.png").stat().st_size > 10_000
    assert gammafl("report", "c", "--out", "page.html", capsys=capsys)[0] == 0
    assert "every nth, n=10" in (in_tmp / "page.html").read_text()


def test_in_a_study(in_tmp: Path) -> None:
    from gammafl.experiments.grid import Factor, Level, Study
    from gammafl.experiments.levels import tasks
    from gammafl.experiments.runner import Options, plan_campaign, run_campaign
    from gammafl.runs.progress import Silent

    quick = {"iterations": 20, "evaluation": {"every": 2, "last": 2, "samples": 50}}
    levels = tuple(Level(name, {"method": name}) for name in ("gamma-fedht", f"{NAME}:n=10"))
    study = Study("own", "own", (tasks("logistic-mini"), Factor("method", levels)), settings=quick)
    campaign = plan_campaign(study, Options(in_tmp / "study", seeds=(0,)))
    run_campaign(campaign, Silent())
    rows = campaign.rows("logistic-mini").finished
    assert [row.cell["method"] for row in rows] == ["gamma-fedht", f"{NAME}:n=10"]


def test_in_simulate() -> None:
    import torch

    clients, test = blobs()
    method = function_in_file(NAME)(n=4)
    result = gf.simulate(torch.nn.Linear(8, 3), clients, test, method=method, stepsize=0.1, iterations=50)
    assert result.summary.kept_fraction == pytest.approx(1 / 4, abs=0.1)


def test_over_flower_where_the_client_brings_the_same_function(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By the name on the server, and by a function on the client. One that does not know it says so, on both sides."""
    mine = function_in_file(NAME)
    settings: dict[str, Any] = {"method": f"{NAME}:n=10", "fraction_train": 1.0}
    chosen, _, model = run_flower(tmp_path / "a", 5, Quadratic(), client={"methods": [mine]}, **settings)
    assert [len(record["clients"]) for record in chosen.history] == [4] * 5
    assert {record["kept"] for record in chosen.history} == {20}
    assert np.isfinite(model).all()
    with pytest.raises(gf.InputError, match="every client failed"):
        run_flower(tmp_path / "b", 1, Quadratic(), **settings)
    assert "the server uses the method 'every_nth', which this client does not know" in caplog.text

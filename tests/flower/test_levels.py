"""Levels over Flower: uploads keep what is planned, level `run` finds its scale, and what is wrong is in the ledger."""

import json
from pathlib import Path

import pytest

import gammafl as gf
from tests.flower.problem import run


def test_every_upload_keeps_what_is_planned(tmp_path: Path) -> None:
    chosen, _, _ = run(tmp_path / "state", 8, method="gamma-fedht", keep=0.1, fraction_train=1.0)
    assert [record["kept"] for record in chosen.history] == [4 * 5] * 8


def test_level_run_warms_up_and_is_steered(tmp_path: Path) -> None:
    method = gf.Method(gf.GammaFedHT(), level=gf.RunLevel(0.1, warmup=3))
    chosen, _, _ = run(tmp_path / "state", 8, method=method, fraction_train=1.0)
    level = chosen.training.exchange.level.state()
    assert [record["kept"] for record in chosen.history[:3]] == [4 * 5] * 3
    assert level is not None
    assert level["scale"] > 0
    assert level["rounds"] == 8


def test_what_is_wrong_is_said_once_in_the_log_and_in_the_ledger(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = tmp_path / "ledger"
    run(tmp_path / "state", 4, method=gf.hard_threshold(threshold=1e6), fraction_train=1.0, ledger=ledger)
    records = [json.loads(line) for line in ledger.read_text().splitlines()]
    assert ["warnings" in record for record in records] == [True, False, False, False]
    assert caplog.text.count("every upload of the round is empty") == 1

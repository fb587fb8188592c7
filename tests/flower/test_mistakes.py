"""Settings that can't work, or that client and server do not share, are said in words before they cost a round."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord
from flwr.serverapp.strategy import FedAvg

import gammafl as gf
import gammafl.flower
from gammafl import seeds
from tests.flower.grid import InProcessGrid
from tests.flower.problem import quadratic_app, run, strategy, to_record
from tests.problems import METHODS, Quadratic
from tests.runs.forging import NO_FILES, not_for_ever, put

METHOD = METHODS["top-k"]


def test_client_and_server_that_disagree_on_the_method_say_where(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(gf.InputError, match="no upload counted in 1 rounds"):
        run(tmp_path, 1, client={"method": gf.TopK(5)}, method=gf.TopK(7), fraction_train=1.0)
    assert "client and server disagree on the method: compressor.k is 5 here and 7 there" in caplog.text


def test_client_and_server_that_agree_train(tmp_path: Path) -> None:
    chosen, _, _ = run(tmp_path, 2, client={"method": gf.TopK(7)}, method=gf.TopK(7), fraction_train=1.0)
    assert [len(record["clients"]) for record in chosen.history] == [4, 4]


def test_a_server_with_another_strategy_is_told_what_to_do(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    task = Quadratic()
    grid = InProcessGrid(quadratic_app(task, tmp_path), 4)
    start = to_record(task, task.initial_model(seeds.generator(0, "model")))
    FedAvg(fraction_evaluate=0.0).start(grid, start, 1)
    assert "wrap its strategy in gammafl.flower.Compressed" in caplog.text


@pytest.mark.parametrize(
    "wrong",
    [
        {"local_steps": 0},
        {"min_accepted": 0},
        {"downlink": "half"},
        {"averaging": "sometimes"},
        {"configrecord_key": "gammafl"},
        {"seed": -1},
        {"stepsize": "fast"},
        {"whole": "*running_mean"},
    ],
    ids=str,
)
def test_a_wrong_argument_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(gf.InputError, match=next(iter(wrong))):
        strategy(**wrong)


@pytest.mark.parametrize(
    "wrong", [{"payload_bytes": 0}, {"entries": -1}, {"entries": 1e6}, {"norm": -1.0}, {"weight": 0.0}], ids=str
)
def test_a_limit_that_is_none_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(gf.InputError, match=next(iter(wrong))):
        gammafl.flower.Limits(**wrong)


def test_a_ledger_that_can_not_be_written_any_more_does_not_end_the_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chosen, _, _ = run(tmp_path, 3, method=METHOD, ledger="/dev/full")
    assert [record["round"] for record in chosen.history] == [1, 2, 3]
    assert caplog.text.count("could not be written") == 3


def test_what_can_not_be_written_or_read_is_said_before_the_first_round(tmp_path: Path) -> None:
    arrays = to_record(Quadratic(), np.zeros(50, np.float32))
    grid = InProcessGrid(quadratic_app(Quadratic(), tmp_path), 4)
    with pytest.raises(gf.InputError, match=r"can't write .* choose another ledger"):
        strategy(ledger=tmp_path / "missing" / "rounds.jsonl").start(grid, arrays, 3)
    with pytest.raises(gf.InputError, match="must be a positive number"):
        strategy(stepsize=None).start(grid, arrays, 3, train_config=ConfigRecord({"lr": "fast"}))
    assert not grid.sent


@pytest.mark.parametrize("name", ["", "a/b", "x" * 200, "two\nlines"])
def test_a_partition_id_that_is_no_name_is_refused_before_training(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    task = Quadratic()
    grid = InProcessGrid(quadratic_app(task, tmp_path), 2)
    for context in grid.contexts.values():
        context.node_config["partition-id"] = name
    with pytest.raises(gf.InputError, match="every client failed"):
        strategy(method=METHOD).start(grid, to_record(task, np.zeros(50, np.float32)), 1)
    assert not task.deltas
    assert "partition-id must be" in caplog.text


@pytest.mark.parametrize("kind", sorted(NO_FILES.keys() - {"a link to nothing", "a device that never ends"}))
def test_a_ledger_that_is_no_file_is_refused_before_the_first_round(kind: str, tmp_path: Path) -> None:
    put(kind, tmp_path / "ledger")
    with not_for_ever(), pytest.raises(gf.InputError, match=r"can't write .*ledger .*choose another ledger"):
        run(tmp_path, 1, method="top-k", ledger=tmp_path / "ledger")


def test_a_ledger_that_becomes_a_pipe_costs_the_training_nothing_but_its_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Swaps(gf.Callback):
        def on_start(self, run: gf.Run) -> None:
            put("a pipe", tmp_path / "ledger")

    with not_for_ever():
        chosen, _, _ = run(tmp_path, 2, method="top-k", ledger=tmp_path / "ledger", callbacks=[Swaps()])
    assert [record["round"] for record in chosen.history] == [1, 2]
    assert "the line of round 1 could not be written" in caplog.text

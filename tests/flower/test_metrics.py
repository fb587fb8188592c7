"""Metrics that make no sense are left out, and cost nobody an upload."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict

from tests.flower.grid import InProcessGrid
from tests.flower.problem import from_record, quadratic_app, run, strategy, to_record
from tests.flower.spoil import BAD_NODE, with_metrics
from tests.problems import METHODS, Quadratic

METHOD = METHODS["top-k"]


@pytest.mark.parametrize("odd", [{"more": 1.0}, {"train-loss": [0.1, 0.2]}, {"train-loss": []}], ids=str)
def test_odd_metrics_are_left_out_and_the_upload_counts(
    odd: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def bad(message: Message, reply: Message) -> Message:
        if message.metadata.dst_node_id == BAD_NODE:
            with_metrics(**odd)(reply.content)
        return reply

    _, _, expected = run(tmp_path / "good", 3, method=METHOD, fraction_train=1.0)
    chosen, _, model = run(tmp_path / "bad", 3, fate=bad, method=METHOD, fraction_train=1.0)
    assert model.tobytes() == expected.tobytes()
    assert all(len(record["clients"]) == 4 for record in chosen.history)
    assert "metrics of 1 replies left out" in caplog.text


def test_a_metric_function_that_fails_costs_the_metrics_and_sees_all_that_the_app_sent(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    def broken(contents: list[RecordDict], key: str) -> MetricRecord:
        seen.extend(sorted(content) for content in contents)
        raise ZeroDivisionError

    def with_notes(message: Message, reply: Message) -> Message:
        reply.content["notes"] = ConfigRecord({"device": "phone"})
        return reply

    chosen, _, _ = run(tmp_path, 2, fate=with_notes, method=METHOD, fraction_train=1.0, train_metrics_aggr_fn=broken)
    assert all(len(record["clients"]) == 4 for record in chosen.history)
    assert seen[0] == ["arrays", "metrics", "notes"]


@pytest.mark.parametrize("weight", [0, -3, float("nan"), [], 1e300], ids=str)
def test_an_evaluation_with_a_bad_weight_is_left_out(weight: Any, tmp_path: Path) -> None:
    task = Quadratic()

    def bad(message: Message, reply: Message) -> Message:
        if message.metadata.message_type == "evaluate" and message.metadata.dst_node_id == BAD_NODE:
            reply.content["metrics"] = MetricRecord({"num-examples": weight, "distance": 1e9})
        return reply

    grid = InProcessGrid(quadratic_app(task, tmp_path), 4, bad)
    chosen = strategy(method=METHOD, fraction_train=1.0, fraction_evaluate=1.0)
    result = chosen.start(grid, to_record(task, np.zeros(50, np.float32)), 2)
    distance = result.evaluate_metrics_clientapp[2]["distance"]
    assert distance == pytest.approx(task.evaluate(from_record(result.arrays)).metric)

"""One bad client costs its own upload, and the log says why."""

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

import gammafl as gf
import gammafl.flower
from gammafl import seeds
from gammafl.core.kernels import Vector
from gammafl.core.wire import CHECKED, CHECKSUM, HEADER, encode
from gammafl.runtimes.flower.terms import message_record
from tests.problems import METHODS, Quadratic
from tests.runtimes.flower.books import remembered
from tests.runtimes.flower.grid import InProcessGrid
from tests.runtimes.flower.problem import quadratic_app, run, strategy, to_record

BAD_NODE = 102
METHOD = METHODS["top-k"]


def with_payload(payload: bytes) -> Callable[[RecordDict], None]:
    def spoil(content: RecordDict) -> None:
        content["arrays"] = message_record("update", payload)

    return spoil


def with_metrics(**metrics: Any) -> Callable[[RecordDict], None]:
    def spoil(content: RecordDict) -> None:
        content["metrics"] = MetricRecord({"num-examples": 30, "train-loss": 0.1} | metrics)

    return spoil


def with_terms(**terms: Any) -> Callable[[RecordDict], None]:
    def spoil(content: RecordDict) -> None:
        content["gammafl"] = ConfigRecord({**content.config_records["gammafl"], **terms})

    return spoil


def without(key: str) -> Callable[[RecordDict], None]:
    def spoil(content: RecordDict) -> None:
        del content[key]

    return spoil


def whole_model(content: RecordDict) -> None:
    content["arrays"] = ArrayRecord({"first": Array(np.zeros(40, np.float32))})


def not_finite() -> bytes:
    """A message in order, but for a NaN among its values."""
    message = encode(gf.SparseUpdate(50, None, np.linspace(0.1, 1, 50)))
    head, body = message[: CHECKED.size], message[HEADER.size : -4] + np.float32(np.nan).tobytes()
    return head + CHECKSUM.pack(zlib.crc32(body, zlib.crc32(head))) + body


BAD: dict[str, tuple[Callable[[RecordDict], None], str]] = {
    "malformed": (with_payload(b"garbage"), "shorter than the header"),
    "non-finite": (with_payload(not_finite()), "finite"),
    "wrong dimension": (with_payload(encode(gf.SparseUpdate(51, [3], [1.0]))), "51 elements for a model of 50"),
    "oversized": (with_payload(bytes(10_000)), "10000 bytes where 464 are allowed"),
    "a whole model": (whole_model, "compress"),
    "no terms": (without("gammafl"), "compress"),
    "another protocol": (with_terms(protocol=2), "same version"),
    "malformed terms": (with_terms(number=-5), "malformed"),
    "of another round": (with_terms(round=1), "round 1 in round"),
    "no metrics": (without("metrics"), "one MetricRecord"),
    "no weight": (with_metrics(**{"num-examples": 0}), "positive number"),
    "infinite weight": (with_metrics(**{"num-examples": float("inf")}), "positive number"),
    "a list as weight": (with_metrics(**{"num-examples": [1, 2]}), "positive number"),
    "other metrics": (with_metrics(more=1.0), "those of the others"),
    "a list as metric": (with_metrics(**{"train-loss": [0.1, 0.2]}), "train-loss[2], those of the others"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_upload_is_refused_with_its_reason_and_the_round_goes_on(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """From the second round on, the model is as if the bad client's replies had been lost."""
    spoil, reason = BAD[kind]

    def bad(message: Message, reply: Message) -> Message:
        if message.metadata.dst_node_id == BAD_NODE and message.content["config"]["server-round"] > 1:  # type: ignore[operator]
            spoil(reply.content)
        return reply

    def lost(message: Message, reply: Message) -> Message | None:
        late = message.content["config"]["server-round"] > 1  # type: ignore[operator]
        return None if message.metadata.dst_node_id == BAD_NODE and late else reply

    settings: dict[str, Any] = {"method": METHOD, "fraction_train": 1.0}
    chosen, _, model = run(tmp_path / "bad", 5, fate=bad, **settings)
    _, _, expected = run(tmp_path / "lost", 5, fate=lost, **settings)
    assert model.tobytes() == expected.tobytes()
    for record in chosen.history[1:]:
        assert record["clients"] == ["0", "1", "3"]
        assert reason in record["refused"][str(BAD_NODE)]
    assert f"upload of node {BAD_NODE} refused" in caplog.text


def test_the_number_of_refused_uploads_is_a_metric(tmp_path: Path) -> None:
    task = Quadratic()

    def bad(message: Message, reply: Message) -> Message:
        if message.metadata.dst_node_id == BAD_NODE:
            with_payload(b"")(reply.content)
        return reply

    grid = InProcessGrid(quadratic_app(task, tmp_path), 4, bad)
    result = strategy(method=METHOD, fraction_train=1.0).start(grid, to_record(task, np.zeros(50, np.float32)), 2)
    assert result.train_metrics_clientapp[2]["refused-uploads"] == 1
    assert result.train_metrics_clientapp[2]["accepted-uploads"] == 3


def test_a_replay_is_refused(tmp_path: Path) -> None:
    kept: list[RecordDict] = []

    def replay(message: Message, reply: Message) -> Message:
        if message.metadata.dst_node_id == BAD_NODE:
            kept.append(reply.content)
            reply.content = RecordDict(dict(kept[0]))
            with_terms(round=message.content["config"]["server-round"])(reply.content)
        return reply

    chosen, _, _ = run(tmp_path, 4, fate=replay, method=METHOD, fraction_train=1.0)
    assert not chosen.history[0]["refused"]
    for record in chosen.history[1:]:
        assert "came after its upload 1" in record["refused"][str(BAD_NODE)]


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (gammafl.flower.Limits(payload_bytes=20), "bytes where 20 are allowed"),
        (gammafl.flower.Limits(entries=2), "entries where 2 are allowed"),
        (gammafl.flower.Limits(norm=1e-6), "norm"),
        (gammafl.flower.Limits(weight=25), "num-examples"),
    ],
    ids=str,
)
def test_what_an_upload_may_be_can_be_limited(limits: gammafl.flower.Limits, reason: str, tmp_path: Path) -> None:
    chosen, _, _ = run(tmp_path, 2, method=METHOD, fraction_train=1.0, limits=limits)
    assert all(reason in text for record in chosen.history for text in record["refused"].values())
    assert all(record["refused"] for record in chosen.history)


def test_two_nodes_with_one_partition_do_not_count_an_update_twice(tmp_path: Path, applied: dict[str, Vector]) -> None:
    task = Quadratic((10, 20))
    grid = InProcessGrid(quadratic_app(task, tmp_path), 2)
    grid.contexts[150] = grid._context(150, 1)
    chosen = strategy(method=gf.Dense(), fraction_train=1.0)
    chosen.start(grid, to_record(task, np.zeros(50, np.float32)), 4)
    assert [record["clients"] for record in chosen.history] == [["0", "1"]] * 4
    assert all("two SuperNodes" in text for record in chosen.history for text in record["refused"].values())
    computed = np.sum([delta for client, delta in task.deltas if client == 1], axis=0)
    np.testing.assert_allclose(applied["1"] + remembered(tmp_path, chosen)["1"], computed, atol=1e-5)


def test_client_and_server_that_disagree_on_the_method_say_where(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chosen, _, _ = run(tmp_path, 1, client={"method": gf.TopK(5)}, method=gf.TopK(7), fraction_train=1.0)
    assert chosen.history[0]["failed"] == 4
    assert "client and server disagree on the method: k is 5 here and 7 there" in caplog.text


def test_client_and_server_that_agree_train(tmp_path: Path) -> None:
    chosen, _, _ = run(tmp_path, 2, client={"method": gf.TopK(7)}, method=gf.TopK(7), fraction_train=1.0)
    assert [len(record["clients"]) for record in chosen.history] == [4, 4]


def test_a_server_with_another_strategy_is_told_what_to_do(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    task = Quadratic()
    grid = InProcessGrid(quadratic_app(task, tmp_path), 4)
    start = to_record(task, task.initial_model(seeds.generator(0, "model")))
    FedAvg(fraction_evaluate=0.0).start(grid, start, 1)
    assert "use gammafl.flower.CompressedFedAvg" in caplog.text


def test_a_directory_that_can_not_be_written_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    chosen, _, _ = run(tmp_path / "file", 1, method=METHOD, fraction_train=1.0)
    assert chosen.history[0]["failed"] == 4
    assert "GAMMAFL_STATE" in caplog.text


@pytest.mark.parametrize(
    "wrong",
    [{"local_steps": 0}, {"min_accepted": 0}, {"downlink": "half"}, {"averaging": "sometimes"}],
    ids=str,
)
def test_a_wrong_argument_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(gf.InputError, match=next(iter(wrong))):
        strategy(**wrong)

"""One bad client costs its own upload, and the log says why."""

import shutil
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
from tests.runtimes.flower.books import computed, remembered
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
    "a weight beyond all bounds": (with_metrics(**{"num-examples": 1e300}), "positive number"),
    "a list of a million as weight": (with_metrics(**{"num-examples": [0] * 1_000_000}), "positive number"),
    "a name that would forge a line of the log": (with_terms(name="0\nERROR"), "malformed"),
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
        (gammafl.flower.Limits(weight=5), "where 5 is allowed"),
    ],
    ids=str,
)
def test_what_an_upload_may_be_can_be_limited(limits: gammafl.flower.Limits, reason: str, tmp_path: Path) -> None:
    chosen, _, _ = run(tmp_path, 2, method=METHOD, fraction_train=1.0, limits=limits)
    assert all(reason in text for record in chosen.history for text in record["refused"].values())
    assert all(len(record["refused"]) == 4 for record in chosen.history)


@pytest.mark.parametrize("limits", [gammafl.flower.Limits(entries=2), gammafl.flower.Limits(norm=0.5)], ids=str)
@pytest.mark.parametrize("name", ["fedavg", "top-k", "stc"])
def test_honest_clients_stay_within_the_limits_and_keep_the_rest(
    name: str, limits: gammafl.flower.Limits, tmp_path: Path, applied: dict[str, Vector]
) -> None:
    """Others are refused. What was too much for one upload is sent with the next ones."""
    task = Quadratic()

    def too_much(message: Message, reply: Message) -> Message:
        if message.metadata.dst_node_id == BAD_NODE:
            with_payload(encode(gf.SparseUpdate(50, None, np.full(50, 7.0))))(reply.content)
        return reply

    chosen, _, _ = run(tmp_path, 6, task, too_much, method=METHODS[name], fraction_train=1.0, limits=limits)
    for record in chosen.history:
        assert record["clients"] == ["0", "1", "3"]
        assert "allowed" in record["refused"][str(BAD_NODE)]
    rest = remembered(tmp_path, chosen)
    for client in ("0", "1", "3"):
        np.testing.assert_allclose(applied[client] + rest[client], computed(task, client), atol=1e-5)


@pytest.mark.parametrize("downlink", ["full", "changes"])
def test_no_client_can_make_the_model_infinite(downlink: str, tmp_path: Path) -> None:
    """It can spoil it where no `Limits` are set; but whoever runs the server sees a finite model, and no crash."""

    def huge(message: Message, reply: Message) -> Message:
        if message.metadata.dst_node_id == BAD_NODE and reply.has_content():
            with_payload(encode(gf.SparseUpdate(50, [3], [-3.4e38])))(reply.content)
            with_metrics(**{"num-examples": 10**12})(reply.content)
        return reply

    chosen, _, model = run(tmp_path, 5, fate=huge, method=METHOD, fraction_train=1.0, downlink=downlink)
    assert np.isfinite(model).all()
    assert any("beyond what float32" in text for record in chosen.history for text in record["refused"].values())


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
    assert seen[0] == ["metrics", "notes"]


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
    assert distance == pytest.approx(task.evaluate(chosen.state.model).metric)


@pytest.mark.parametrize("disks", ["own", "copied"])
def test_of_two_nodes_with_one_partition_one_counts(
    disks: str, tmp_path: Path, applied: dict[str, Vector], caplog: pytest.LogCaptureFixture
) -> None:
    """Each with a disk of its own, or with a copy of the other's: the second is refused, and the log says why."""
    task = Quadratic((10, 20))
    grid = InProcessGrid(quadratic_app(task, tmp_path / "a"), 2)
    chosen, config = strategy(method=METHOD, fraction_train=1.0), ConfigRecord()
    arrays = to_record(task, np.zeros(50, np.float32))
    chosen.begin(arrays, 4, config)
    double = InProcessGrid(quadratic_app(task, tmp_path / "b"), 2)
    double.restart(101, 150)
    for number in range(1, 5):
        messages = list(chosen.configure_train(number, arrays, config, grid))
        extra = chosen._message(150, number, config, "train")
        if number == 3 and disks == "copied":
            shutil.copytree(tmp_path / "a", tmp_path / "b", dirs_exist_ok=True)
        replies = [*grid.send_and_receive(messages), *(double.send_and_receive([extra]) if number > 2 else [])]
        before = len(task.deltas)
        chosen.aggregate_train(number, replies)
        assert before == len(task.deltas)
    assert [record["clients"] for record in chosen.history] == [["0", "1"]] * 4
    refused = [record["refused"] for record in chosen.history]
    assert all("one partition-id" in reasons["150"] for reasons in refused[2:])
    assert "lost its stored state" not in caplog.text


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
    [
        {"local_steps": 0},
        {"min_accepted": 0},
        {"downlink": "half"},
        {"averaging": "sometimes"},
        {"configrecord_key": "gammafl"},
    ],
    ids=str,
)
def test_a_wrong_argument_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(gf.InputError, match=next(iter(wrong))):
        strategy(**wrong)


def test_what_can_not_be_written_or_read_is_said_before_the_first_round(tmp_path: Path) -> None:
    arrays = to_record(Quadratic(), np.zeros(50, np.float32))
    with pytest.raises(gf.InputError, match="no directory"):
        strategy(ledger=tmp_path / "missing" / "rounds.jsonl").begin(arrays, 3, ConfigRecord())
    with pytest.raises(gf.InputError, match="must be a number"):
        strategy(stepsize=None).begin(arrays, 3, ConfigRecord({"lr": "fast"}))


@pytest.mark.parametrize("name", ["", "a/b", "x" * 200, "two\nlines"])
def test_a_partition_id_that_is_no_name_is_refused_before_training(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    task = Quadratic()
    grid = InProcessGrid(quadratic_app(task, tmp_path), 2)
    for context in grid.contexts.values():
        context.node_config["partition-id"] = name
    strategy(method=METHOD).start(grid, to_record(task, np.zeros(50, np.float32)), 1)
    assert not task.deltas
    assert "partition-id must be" in caplog.text


def test_messages_expire_with_the_round(tmp_path: Path) -> None:
    task = Quadratic()
    grid = InProcessGrid(quadratic_app(task, tmp_path), 4)
    chosen = strategy(method=METHOD)
    chosen.begin(to_record(task, np.zeros(50, np.float32)), 3, ConfigRecord(), timeout=17.0)
    messages = list(chosen.configure_train(2, ArrayRecord(), ConfigRecord(), grid))
    assert [(m.metadata.ttl, m.metadata.group_id) for m in messages] == [(17.0, "2")] * 2

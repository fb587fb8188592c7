"""One bad client costs its own upload, and the log says why."""

import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

import gammafl as gf
import gammafl.flower
from gammafl.core.kernels import Vector
from gammafl.core.wire import CHECKED, CHECKSUM, HEADER, encode
from tests.problems import METHODS, Quadratic
from tests.runtimes.flower.grid import InProcessGrid
from tests.runtimes.flower.problem import quadratic_app, run, strategy, to_record
from tests.runtimes.flower.spoil import BAD_NODE, with_metrics, with_payload, with_terms, without

METHOD = METHODS["top-k"]


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


def test_messages_expire_with_the_round(tmp_path: Path) -> None:
    task = Quadratic()
    grid = InProcessGrid(quadratic_app(task, tmp_path), 4)
    chosen = strategy(method=METHOD)
    chosen.begin(to_record(task, np.zeros(50, np.float32)), 3, ConfigRecord(), timeout=17.0)
    messages = list(chosen.configure_train(2, ArrayRecord(), ConfigRecord(), grid))
    assert [(m.metadata.ttl, m.metadata.group_id) for m in messages] == [(17.0, "2")] * 2

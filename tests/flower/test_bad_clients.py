"""One bad client costs its own upload, and the log says why."""

import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, RecordDict

import gammafl as gf
import gammafl.flower
from gammafl.core.aggregate import LARGEST_MODEL
from gammafl.core.arrays import Vector
from gammafl.core.wire import CHECKED, CHECKSUM, START, encode
from gammafl.flower.layout import Layout
from tests.flower.books import check_books, computed, remembered
from tests.flower.grid import InProcessGrid, Together
from tests.flower.problem import by_hand, from_record, quadratic_app, run, strategy, to_record
from tests.flower.spoil import BAD_NODE, with_metrics, with_payload, with_terms, without
from tests.problems import METHODS, Quadratic

METHOD = METHODS["top-k"]


def whole_model(content: RecordDict) -> None:
    content["arrays"] = ArrayRecord({"first": Array(np.zeros(40, np.float32))})


def not_finite() -> bytes:
    """A message in order, but for a NaN among its values."""
    message = encode(gf.SparseUpdate(50, None, np.linspace(0.1, 1, 50)))
    head, body = message[:CHECKED], message[START.size : -4] + np.float32(np.nan).tobytes()
    return head + CHECKSUM.pack(zlib.crc32(body, zlib.crc32(head))) + body


BAD: dict[str, tuple[Callable[[RecordDict], None], str]] = {
    "malformed": (with_payload(b"garbage"), "shorter than the header"),
    "non-finite": (with_payload(not_finite()), "finite"),
    "wrong dimension": (with_payload(encode(gf.SparseUpdate(51, [3], [1.0]))), "51 elements for a model of 50"),
    "oversized": (with_payload(bytes(10_000)), "10000 bytes, but 464 are allowed"),
    "a whole model": (whole_model, "compress"),
    "no terms": (without("gammafl"), "compress"),
    "a number that no client can have": (with_terms(number=10**18), "at most one upload per round"),
    "a term whose name would forge a line of the log": (with_terms(**{"x\nERROR\x1b[2J": 1}), "malformed"),
    "another protocol": (with_terms(protocol=1), "same version"),
    "malformed terms": (with_terms(number=-5), "malformed"),
    "of another round": (with_terms(round=1), "round 1 came in round"),
    "no metrics": (without("metrics"), "one MetricRecord"),
    "no weight": (with_metrics(**{"num-examples": 0}), "positive number"),
    "infinite weight": (with_metrics(**{"num-examples": float("inf")}), "positive number"),
    "a list as weight": (with_metrics(**{"num-examples": [1, 2]}), "positive number"),
    "a weight beyond all bounds": (with_metrics(**{"num-examples": 1e300}), "positive number"),
    "a weight next to nothing": (with_metrics(**{"num-examples": 5e-324}), "positive number"),
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
    assert all(record.message.isprintable() for record in caplog.records if record.message.startswith("gammafl"))


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


@pytest.mark.parametrize("downlink", ["full", "changes", "stc:keep=0.2"])
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


@pytest.mark.parametrize("weight", [5e-324, 1e-300, 2.0**-53, 1, 2**53, 1e300])
@pytest.mark.parametrize("value", [1.0, 3.4e38])
def test_no_weight_and_no_value_of_a_client_that_is_alone_makes_the_model_infinite(
    weight: float, value: float, tmp_path: Path
) -> None:
    """In the first rounds its upload is the only one that arrives; then the others come back, and training goes on."""

    def alone(message: Message, reply: Message) -> Message | None:
        if message.metadata.dst_node_id == BAD_NODE and reply.has_content():
            with_payload(encode(gf.SparseUpdate(50, [3], [value])))(reply.content)
            with_metrics(**{"num-examples": weight})(reply.content)
            return reply
        return reply if message.content["config"]["server-round"] > 3 else None  # type: ignore[operator]

    chosen, _, model = run(tmp_path, 6, fate=alone, method=METHOD, fraction_train=1.0, averaging="exponential")
    assert np.isfinite(model).all()
    assert chosen.averaged_arrays is not None
    assert np.isfinite(from_record(chosen.averaged_arrays)).all()
    for record in chosen.history[3:]:
        assert {"0", "1", "3"} <= set(record["clients"])


def test_a_spoilt_element_keeps_nobody_out(tmp_path: Path) -> None:
    """One client drives one element as far as it can, in every round; the others count in each of them."""

    def spoil(message: Message, reply: Message) -> Message:
        if message.metadata.dst_node_id == BAD_NODE and reply.has_content():
            with_payload(encode(gf.SparseUpdate(50, [3], [-LARGEST_MODEL])))(reply.content)
            with_metrics(**{"num-examples": 2.0**53})(reply.content)
        return reply

    chosen, _, model = run(tmp_path, 8, fate=spoil, method=gf.Dense(), fraction_train=1.0)
    assert np.isfinite(model).all()
    assert [len(record["clients"]) for record in chosen.history] == [4] * 8


def test_a_client_that_leaves_ends_nothing_whatever_it_said(tmp_path: Path) -> None:
    """The largest numbers that an answer may hold, and then the node is gone: its receipt goes to new nodes."""
    grid = InProcessGrid(quadratic_app(Quadratic(), tmp_path), 4)

    def leave(message: Message, reply: Message) -> Message:
        if message.metadata.dst_node_id == BAD_NODE:
            with_terms(name="x" * 100, incarnation="y" * 128, number=message.content["config"]["server-round"])(
                reply.content
            )
            grid.restart(BAD_NODE, 900)
        return reply

    grid.fate = leave
    chosen = strategy(method=METHOD, fraction_train=1.0)
    chosen.start(grid, to_record(Quadratic(), np.zeros(50, np.float32)), 5)
    assert all({"0", "1", "3"} <= set(record["clients"]) for record in chosen.history)


def test_a_model_of_16_bit_floats_stays_finite(tmp_path: Path) -> None:
    record = ArrayRecord({"half": Array(np.zeros(4, np.float16)), "single": Array(np.zeros(4, np.float32))})
    layout = Layout.of(record)
    vector = np.full(8, 1e6, np.float32)
    layout.clamp(vector)
    made = layout.record(vector)
    assert np.isfinite(made["half"].numpy()).all()
    assert (made["single"].numpy() == 1e6).all()


@pytest.mark.parametrize("disks", ["own", "copied"])
def test_two_nodes_with_one_partition_are_two_clients(
    disks: str, tmp_path: Path, applied: dict[str, Vector], caplog: pytest.LogCaptureFixture
) -> None:
    """Each with a disk of its own, or with a copy of the other's: both count, each once, and the log says so."""
    task = Quadratic((10, 20))
    grid = InProcessGrid(quadratic_app(task, tmp_path / "a"), 2)
    chosen = strategy(method=METHOD, fraction_train=1.0)
    double = InProcessGrid(quadratic_app(task, tmp_path / "b"), 2)
    double.restart(101, 150)
    del double.contexts[100]
    together = Together(grid)
    with by_hand(chosen, together, 5) as play:
        for number in range(1, 6):
            if number == 3:
                together.grids.append(double)
                if disks == "copied":
                    shutil.copytree(tmp_path / "a", tmp_path / "b", dirs_exist_ok=True)
            play(number)
    clients = [record["clients"] for record in chosen.history]
    first = ["0", "1", "1@150"] if disks == "own" else ["0", "1"]  # the copy sends what has arrived, and learns of it
    assert clients == [["0", "1"], ["0", "1"], first, ["0", "1", "1@150"], ["0", "1", "1@150"]]
    assert "one partition-id" in caplog.text
    assert "client 1 lost its stored state" not in caplog.text


def test_of_two_uploads_of_one_sender_the_one_from_its_known_node_counts(
    tmp_path: Path, applied: dict[str, Vector]
) -> None:
    """Another node has a copy of client 1's state."""
    task = Quadratic((10, 20))
    grid, copy = (InProcessGrid(quadratic_app(task, tmp_path / name), 2) for name in ("a", "b"))
    copy.restart(101, 99)
    del copy.contexts[100]
    originals: list[Message] = []

    def note(message: Message, reply: Message) -> Message:
        originals.append(reply)
        return reply

    def forge(message: Message, reply: Message) -> Message:
        task.deltas.pop()
        original = originals[-1].content.config_records["gammafl"]
        with_terms(incarnation=original["incarnation"], number=original["number"])(reply.content)
        return reply

    grid.fate, copy.fate = note, forge
    chosen, together = strategy(method=METHOD, fraction_train=1.0), Together(grid)
    with by_hand(chosen, together, 4) as play:
        for number in range(1, 5):
            play(number)
            together.grids = [grid, copy]
    assert [record["clients"] for record in chosen.history] == [["0", "1"]] * 4
    assert all("a copy of the other's" in record["refused"]["99"] for record in chosen.history[1:])
    check_books(task, tmp_path / "a", chosen, applied, "01")


@pytest.mark.parametrize("participation", [1.0, 0.5])
@pytest.mark.parametrize("begins", [1, 4])
@pytest.mark.parametrize("node", [99, 199])
@pytest.mark.parametrize("payload", [b"garbage", encode(gf.SparseUpdate(50, [3], [0.5]))], ids=["bad", "in-order"])
def test_who_knows_a_clients_name_keeps_it_from_nothing(
    participation: float,
    begins: int,
    node: int,
    payload: bytes,
    tmp_path: Path,
    applied: dict[str, Vector],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A node calls itself "0" with high numbers, from the first round on or later: client 0 counts whenever asked."""
    task = Quadratic()
    grid = InProcessGrid(quadratic_app(task, tmp_path), 4)

    def forge(message: Message, reply: Message) -> Message | None:
        number = int(message.content["config"]["server-round"])  # type: ignore[arg-type]
        if message.metadata.dst_node_id != node:
            return reply
        if number < begins:
            return None
        with_payload(payload)(reply.content)
        with_terms(name="0", incarnation="any", number=10**9 + number)(reply.content)
        return reply

    grid.fate = forge
    grid.restart(103, node)
    chosen = strategy(method=METHOD, fraction_train=participation)
    chosen.start(grid, to_record(task, np.zeros(50, np.float32)), 30)
    victim = "0@100" if "0@100" in applied else "0"
    asked = [message.content["config"]["server-round"] for message in grid.sent if message.metadata.dst_node_id == 100]
    assert [record["round"] for record in chosen.history if victim in record["clients"]] == asked
    assert len(asked) > 5
    rest = remembered(tmp_path, chosen)["0"]
    np.testing.assert_allclose(applied[victim] + rest, computed(task, "0"), atol=1e-5)
    assert "client 0 lost its stored state" not in caplog.text
    assert "client 0 starts clean" not in caplog.text


def test_messages_expire_with_the_round(tmp_path: Path) -> None:
    task = Quadratic()
    grid = InProcessGrid(quadratic_app(task, tmp_path), 4)
    seconds = []

    def note(message: Message, reply: Message) -> Message:
        seconds.append(message.metadata.ttl)
        return reply

    grid.fate = note
    strategy(method=METHOD).start(grid, to_record(task, np.zeros(50, np.float32)), 3, timeout=17.0)
    assert seconds == [17.0] * 6

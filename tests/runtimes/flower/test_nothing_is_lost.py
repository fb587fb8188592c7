"""Replies that get lost, nodes that restart, disks that are lost: every update counts exactly once."""

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message

import gammafl as gf
import gammafl.flower
from gammafl import seeds
from gammafl.core.kernels import Vector
from gammafl.runtimes import tensor_files
from gammafl.runtimes.flower.disk import ClientDisk
from tests.problems import METHODS, Quadratic
from tests.runtimes.flower.books import computed, remembered
from tests.runtimes.flower.grid import InProcessGrid, state_files
from tests.runtimes.flower.problem import from_record, quadratic_app, run, strategy, to_record

every_method = pytest.mark.parametrize("name", METHODS)


@every_method
def test_what_clients_computed_is_in_the_model_or_on_their_disks(
    name: str, tmp_path: Path, applied: dict[str, Vector]
) -> None:
    """A third of the replies is lost, and after a fifth of them the node restarts under another id."""
    chance, task = random.Random(3), Quadratic()
    grid = InProcessGrid(quadratic_app(task, tmp_path), 4)

    def fate(message: Message, reply: Message) -> Message | None:
        if chance.random() < 1 / 5:
            grid.restart(message.metadata.dst_node_id, chance.randrange(1000, 10**6))
        return reply if chance.random() > 1 / 3 else None

    grid.fate = fate
    chosen = strategy(method=METHODS[name])
    chosen.start(grid, to_record(task, np.zeros(50, np.float32)), 30)
    rest = remembered(tmp_path, chosen)
    assert any(record["repeated"] for record in chosen.history)
    assert len(rest) == 4
    for client in rest:
        np.testing.assert_allclose(applied[client] + rest[client], computed(task, client), atol=1e-5)


def test_an_upload_that_timed_out_is_sent_with_the_next_one(
    tmp_path: Path, applied: dict[str, Vector], caplog: pytest.LogCaptureFixture
) -> None:
    """FedAVG sends everything: after the next upload that arrives, nothing is left on the client's disk."""
    task, lost = Quadratic(), iter([None])
    run(tmp_path, 3, task, lambda message, reply: next(lost, reply), method=gf.Dense(), fraction_train=1.0)
    for client in ("0", "1", "2", "3"):
        np.testing.assert_allclose(applied[client], computed(task, client), atol=1e-5)
    warnings = [record.message for record in caplog.records if "did not count" in record.message]
    assert len(warnings) == 1
    assert "upload 1 of client 0" in warnings[0]


def test_an_upload_counts_the_same_whoever_else_answers(tmp_path: Path, applied: dict[str, Vector]) -> None:
    """One of four clients of equal size counts a quarter, also where it is the only one whose reply arrives."""
    task, chance = Quadratic(sizes=(10, 10, 10, 10)), random.Random(5)
    half = {"fate": lambda message, reply: reply if chance.random() > 1 / 2 else None}
    chosen, _, model = run(tmp_path, 8, task, **half, method=gf.Dense(), fraction_train=1.0)
    assert len({len(record["clients"]) for record in chosen.history}) > 1
    start = task.initial_model(seeds.generator(0, "model"))
    np.testing.assert_allclose(model, start - sum(applied.values()) / 4, atol=1e-5)


def test_a_client_whose_training_goes_wrong_loses_nothing(tmp_path: Path, applied: dict[str, Vector]) -> None:
    """The train function of client 0 returns a model of another shape, and then one that is not finite."""
    task, wrong = Quadratic(), iter([None, None, np.zeros(3, np.float32), np.full(40, np.nan, np.float32)])

    def spoil(message: Message, context: Context, call_next: Any) -> Message:
        reply: Message = call_next(message, context)
        if context.node_config["partition-id"] == 0 and (bad := next(wrong, None)) is not None:
            task.deltas.pop()
            reply.content["arrays"] = ArrayRecord({**reply.content.array_records["arrays"], "first": Array(bad)})
        return reply

    chosen, _, _ = run(
        tmp_path, 6, task, client={"inner": [spoil]}, method=gf.TopK(3), fraction_train=1.0, min_train_nodes=4
    )
    assert [record["failed"] for record in chosen.history] == [0, 0, 1, 1, 0, 0]
    rest = remembered(tmp_path, chosen)
    np.testing.assert_allclose(applied["0"] + rest["0"], computed(task, "0"), atol=1e-5)


def test_a_message_that_comes_late_or_twice_is_not_trained_on(tmp_path: Path, applied: dict[str, Vector]) -> None:
    """Its word about what the server has is an old one: to believe it would send an update twice."""
    task = Quadratic((10, 20))
    grid = InProcessGrid(quadratic_app(task, tmp_path), 2)
    chosen, config = strategy(method=gf.Dense(), fraction_train=1.0), ConfigRecord()
    arrays = to_record(task, np.zeros(50, np.float32))
    chosen.begin(arrays, 3, config)
    first = list(chosen.configure_train(1, arrays, config, grid))
    chosen.aggregate_train(1, grid.send_and_receive(first))
    late = grid.send_and_receive(first)
    assert all("too late" in str(reply.error.reason) for reply in late)
    chosen.aggregate_train(2, grid.send_and_receive(chosen.configure_train(2, arrays, config, grid)))
    for client in ("0", "1"):
        np.testing.assert_allclose(applied[client], computed(task, client), atol=1e-5)


def rounds_of(
    task: Quadratic, directory: Path, count: int, each: Any = lambda number: None, **settings: Any
) -> gammafl.flower.CompressedFedAvg:
    """`count` rounds, with `each(number)` before every one."""
    grid = InProcessGrid(quadratic_app(task, directory), 2)
    chosen, config = strategy(**{"method": gf.TopK(3), "fraction_train": 1.0} | settings), ConfigRecord()
    arrays = to_record(task, np.zeros(50, np.float32))
    chosen.begin(arrays, count, config)
    for number in range(1, count + 1):
        each(number)
        chosen.aggregate_train(number, grid.send_and_receive(chosen.configure_train(number, arrays, config, grid)))
    return chosen


def check_books(task: Quadratic, directory: Path, chosen: Any, applied: dict[str, Vector], clients: str) -> None:
    rest = remembered(directory, chosen)
    for client in clients:
        np.testing.assert_allclose(applied[client] + rest[client], computed(task, client), atol=1e-5)


def test_a_disk_that_goes_and_comes_back_counts_nothing_twice(tmp_path: Path, applied: dict[str, Vector]) -> None:
    """Client 0's volume is not there in round 2: its upload of round 1 was accepted, whoever answered since."""
    task, home, away = Quadratic((10, 20)), tmp_path / "run-1" / "0.state", tmp_path / "0.away"

    def move(number: int) -> None:
        if number == 2:
            home.rename(away)
        if number == 3:
            home.rename(tmp_path / "meanwhile")
            away.rename(home)

    chosen = rounds_of(task, tmp_path, 5, move, method=gf.Dense())
    np.testing.assert_allclose(applied["0"] + remembered(tmp_path, chosen)["0"], computed(task, "0"), atol=1e-5)


def test_a_state_that_was_put_back_from_a_copy_starts_clean(
    tmp_path: Path, applied: dict[str, Vector], caplog: pytest.LogCaptureFixture
) -> None:
    """What the old residual held was sent since: sending it again would count it twice."""
    task, state, copy = Quadratic((10, 20)), tmp_path / "run-1" / "0.state", tmp_path / "copy"
    before: list[Vector] = []

    def restore(number: int) -> None:
        if number == 3:
            shutil.copy(state, copy)
        if number == 6:
            before.append(applied["0"].copy())
            shutil.copy(copy, state)
            task.deltas.clear()

    chosen = rounds_of(task, tmp_path, 8, restore)
    assert "client 0 starts clean: its stored state is an old one" in caplog.text
    since = applied["0"] - before[0] + remembered(tmp_path, chosen)["0"]
    np.testing.assert_allclose(since, computed(task, "0"), atol=1e-5)


def test_a_second_training_in_one_run_begins_anew(tmp_path: Path) -> None:
    task = Quadratic((10, 20))
    grid = InProcessGrid(quadratic_app(task, tmp_path), 2)
    chosen = strategy(method=gf.TopK(3), fraction_train=1.0)
    for rounds_ in (3, 5):
        chosen.start(grid, to_record(task, np.zeros(50, np.float32)), rounds_)
    assert [len(record["clients"]) for record in chosen.history] == [2] * 8


def test_a_file_that_can_not_be_read_for_now_is_kept(
    tmp_path: Path, applied: dict[str, Vector], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many open files, a disk that stumbles: the client sits the round out."""
    task, read = Quadratic((10, 20)), tensor_files.read

    def stumble(number: int) -> None:
        def fails(path: Path) -> Any:
            raise OSError(24, "Too many open files")

        monkeypatch.setattr(tensor_files, "read", fails if number == 3 else read)

    chosen = rounds_of(task, tmp_path, 5, stumble)
    assert [record["failed"] for record in chosen.history] == [0, 0, 2, 0, 0]
    check_books(task, tmp_path, chosen, applied, "01")


def test_without_room_on_the_disk_nothing_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    task = Quadratic((10, 20))
    full = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    assert rounds_of(task, tmp_path, 1).history[0]["failed"] == 2
    assert not task.deltas
    assert "make room" in caplog.text


def test_a_client_waits_for_one_that_still_trains_and_gives_up_with_the_round(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a SuperNode was killed and its training process was not."""
    context = InProcessGrid(quadratic_app(Quadratic(), tmp_path), 1).contexts[100]
    with (
        ClientDisk(tmp_path, context).locked(1.0),
        pytest.raises(gf.InputError, match="still trains as client 0"),
        ClientDisk(tmp_path, context).locked(0.0),
    ):
        pass
    with ClientDisk(tmp_path, context).locked(0.0):
        pass
    assert "waiting for it" in caplog.text


def test_an_upload_that_was_sent_from_two_addresses_is_not_taken_back_by_the_word_of_one(
    tmp_path: Path, applied: dict[str, Vector]
) -> None:
    """Sent from 100, lost; again from 500, arrived; then the client is 100 once more, of which nothing was heard."""
    task = Quadratic((10, 20))
    grid = InProcessGrid(quadratic_app(task, tmp_path), 2)
    chosen, config = strategy(method=gf.Dense(), fraction_train=1.0), ConfigRecord()
    arrays = to_record(task, np.zeros(50, np.float32))
    chosen.begin(arrays, 3, config)
    for number, (old, new, lost) in enumerate([(100, 100, True), (100, 500, False), (500, 100, False)], start=1):
        if old != new:
            grid.restart(old, new)
        replies = grid.send_and_receive(chosen.configure_train(number, arrays, config, grid))
        kept = [reply for reply in replies if not (lost and reply.metadata.src_node_id == 100)]
        chosen.aggregate_train(number, kept)
    check_books(task, tmp_path, chosen, applied, "01")


def test_too_few_uploads_leave_the_model_and_the_clients_keep_their_updates(
    tmp_path: Path, applied: dict[str, Vector]
) -> None:
    task, fates = Quadratic(), iter([True, True, False, False])
    chosen, _, _ = run(
        tmp_path, 2, task, lambda m, r: r if next(fates, True) else None,
        method=gf.Dense(), fraction_train=1.0, min_accepted=3,
    )  # fmt: skip
    assert [record["clients"] for record in chosen.history] == [[], ["0", "1", "2", "3"]]
    for client in ("0", "1", "2", "3"):
        np.testing.assert_allclose(applied[client], computed(task, client), atol=1e-5)


def test_a_client_that_lost_its_disk_starts_clean_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fate(message: Message, reply: Message) -> Message:
        if message.content["config"]["server-round"] == 3 and message.metadata.dst_node_id == 101:
            shutil.rmtree(tmp_path / "run-1", ignore_errors=True)
        return reply

    chosen, _, _ = run(tmp_path, 6, Quadratic((10, 20)), fate, method=gf.TopK(3), fraction_train=1.0)
    assert all(len(record["clients"]) == 2 for record in chosen.history)
    for side in ("it took part in this run before", "lost its stored state"):
        said = [record.message for record in caplog.records if side in record.message]
        assert sorted(text.split("client ")[1][0] for text in said) == ["0", "1"]


def test_a_damaged_state_is_put_aside_and_the_client_starts_clean(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fate(message: Message, reply: Message) -> Message:
        if message.content["config"]["server-round"] == 2 and message.metadata.dst_node_id == 101:
            for path in state_files(tmp_path):
                content = bytearray(path.read_bytes())
                content[-1] ^= 1
                path.write_bytes(content)
        return reply

    run(tmp_path, 4, Quadratic((10, 20)), fate, method=gf.TopK(3), fraction_train=1.0)
    assert "checksum differs" in caplog.text
    assert len(list(tmp_path.rglob("*.damaged-*"))) == 2
    assert len(state_files(tmp_path)) == 2


def test_runs_and_partitions_do_not_share_state(tmp_path: Path) -> None:
    run(tmp_path, 2, method=gf.TopK(3), fraction_train=1.0)
    assert [str(path.relative_to(tmp_path)) for path in state_files(tmp_path)] == [
        f"run-1/{partition}.state" for partition in range(4)
    ]


def test_a_residual_that_is_too_old_is_forgotten_if_one_asks_for_that(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    task = Quadratic((10, 20))
    grid = InProcessGrid(quadratic_app(task, tmp_path, forget_after=2), 2)
    chosen, config = strategy(method=gf.TopK(3), fraction_train=1.0), ConfigRecord()
    arrays = to_record(task, np.zeros(50, np.float32))
    chosen.begin(arrays, 6, config)
    for number in range(1, 7):
        messages = list(chosen.configure_train(number, arrays, config, grid))
        reached = messages[1:] if number in (3, 4, 5) else messages
        chosen.aggregate_train(number, grid.send_and_receive(reached))
    assert [r.message for r in caplog.records if "missed" in r.message] == [
        "gammafl: client 0 starts clean: it missed 3 rounds"
    ]
    assert "its state is not in" not in caplog.text
    last = next(delta for client, delta in reversed(task.deltas) if client == 0)
    tensors = tensor_files.read(tmp_path / "run-1" / "0.state")[1]
    np.testing.assert_allclose(tensors["residual"] + gf.decode(tensors["open"].tobytes()).dense(), last, atol=1e-5)


@every_method
def test_with_changes_only_every_client_trains_on_the_servers_model(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Through lost replies, restarts and lost disks, the model that a client gets is the server's bit for bit."""
    chance, task = random.Random(1), Quadratic()
    chosen = strategy(method=METHODS[name], downlink="changes", fraction_evaluate=1.0)
    seen = []

    def look(message: Message, context: Context, call_next: Any) -> Message:
        seen.append(from_record(message.content.array_records["arrays"]).tobytes() == chosen.state.model.tobytes())
        return call_next(message, context)

    grid = InProcessGrid(quadratic_app(task, tmp_path, [look]), 4)

    def fate(message: Message, reply: Message) -> Message | None:
        throw = chance.random()
        if throw < 0.1:
            grid.restart(message.metadata.dst_node_id, chance.randrange(1000, 10**6))
        if throw > 0.9:
            for path in tmp_path.rglob("*.model"):
                path.unlink()
        return reply if throw > 0.2 else None

    grid.fate = fate
    chosen.start(grid, to_record(task, np.zeros(50, np.float32)), 30)
    assert all(seen)
    assert len(seen) > 60
    assert "asks for a whole one" in caplog.text
    assert any(record["without_model"] for record in chosen.history)

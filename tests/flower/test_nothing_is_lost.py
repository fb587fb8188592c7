"""Replies that get lost, nodes that restart: every update counts exactly once."""

import random
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message

import gammafl as gf
import gammafl.flower
from gammafl import seeds
from gammafl.core.arrays import Vector
from tests.flower.books import check_books, computed, remembered
from tests.flower.grid import InProcessGrid, arrives
from tests.flower.problem import by_hand, quadratic_app, run, strategy, to_record
from tests.problems import METHODS, Quadratic

every_method = pytest.mark.parametrize("name", METHODS)


@pytest.mark.parametrize("downlink", ["full", "changes", "stc:keep=0.2"])
@every_method
def test_what_clients_computed_is_in_the_model_or_on_their_disks(
    name: str, downlink: str, tmp_path: Path, applied: dict[str, Vector]
) -> None:
    """A third of the replies is lost, and after a fifth of them the node restarts under another id.

    Every other time the server has not noticed that the old node is gone.
    """
    chance, task = random.Random(3), Quadratic()
    grid = InProcessGrid(quadratic_app(task, tmp_path), 4)

    def fate(message: Message, reply: Message) -> Message | None:
        if chance.random() < 1 / 5:
            grid.restart(message.metadata.dst_node_id, chance.randrange(1000, 10**6), chance.random() < 1 / 2)
        return reply if chance.random() > 1 / 3 else None

    grid.fate = fate
    chosen = strategy(method=METHODS[name], downlink=downlink)
    chosen.start(grid, to_record(task, np.zeros(50, np.float32)), 30)
    rest = remembered(tmp_path, chosen)
    assert any(record["repeated"] for record in chosen.history)
    assert len(rest) == 4
    for client in rest:
        np.testing.assert_allclose(applied[client] + rest[client], computed(task, client), atol=1e-5)


@every_method
def test_a_client_under_a_new_node_id_every_round_goes_on_training(
    name: str, tmp_path: Path, applied: dict[str, Vector]
) -> None:
    """The server can't know its address, but tells it by its incarnation what it has: each round has a new upload."""
    task = Quadratic((10, 20))
    grid = InProcessGrid(quadratic_app(task, tmp_path), 2)
    home = iter(range(1000, 2000))

    def fate(message: Message, reply: Message) -> Message:
        node = message.metadata.dst_node_id
        if grid.contexts[node].node_config["partition-id"] == 0:
            grid.restart(node, next(home))
        return reply

    grid.fate = fate
    chosen = strategy(method=METHODS[name], fraction_train=1.0)
    chosen.start(grid, to_record(task, np.zeros(50, np.float32)), 20)
    assert [sorted(record["clients"]) for record in chosen.history] == [["0", "1"]] * 20
    assert not any(record["repeated"] for record in chosen.history)
    check_books(task, tmp_path, chosen, applied, "01")


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


def test_a_client_that_lost_an_upload_trains_on_from_it(tmp_path: Path) -> None:
    """A single client, everything sent: the model is in the end where it would be had every reply arrived."""

    def trained(folder: str, lost: Collection[int]) -> Vector:
        numbers = iter(range(8))
        alone: dict[str, Any] = {"fraction_train": 1.0, "min_train_nodes": 1, "min_available_nodes": 1}
        alone["fate"] = lambda message, reply: None if next(numbers) in lost else reply
        _, _, model = run(tmp_path / folder, 8, Quadratic((10,)), method=gf.Dense(), **alone)
        return model

    np.testing.assert_allclose(trained("lossy", {1, 2, 5}), trained("whole", {}), atol=1e-5)


def test_an_upload_counts_the_same_whoever_else_answers(tmp_path: Path, applied: dict[str, Vector]) -> None:
    """One of four clients of equal size counts a quarter, also where it is the only one whose reply arrives."""
    task, chance = Quadratic(sizes=(10, 10, 10, 10)), random.Random(5)

    def fate(message: Message, reply: Message) -> Message | None:
        return reply if chance.random() > 1 / 2 else None

    chosen, _, model = run(tmp_path, 8, task, fate, method=gf.Dense(), fraction_train=1.0)
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
    chosen = strategy(method=gf.Dense(), fraction_train=1.0)
    with by_hand(chosen, grid, 2) as play:
        play(1)
        late = grid.send_and_receive(list(grid.sent))
        assert all("has uploaded in round" in str(reply.error.reason) for reply in late)
        play(2)
    for client in ("0", "1"):
        np.testing.assert_allclose(applied[client], computed(task, client), atol=1e-5)


def test_a_second_training_in_one_run_begins_anew(tmp_path: Path) -> None:
    task = Quadratic((10, 20))
    grid = InProcessGrid(quadratic_app(task, tmp_path), 2)
    chosen = strategy(method=gf.TopK(3), fraction_train=1.0)
    for rounds_ in (3, 5):
        chosen.start(grid, to_record(task, np.zeros(50, np.float32)), rounds_)
        assert [len(record["clients"]) for record in chosen.history] == [2] * rounds_


def test_an_upload_that_was_sent_from_two_addresses_is_not_taken_back_by_the_word_of_one(
    tmp_path: Path, applied: dict[str, Vector]
) -> None:
    """Sent from 100, lost; again from 500, arrived; then the client is 100 once more, of which nothing was heard."""
    task = Quadratic((10, 20))
    grid = InProcessGrid(quadratic_app(task, tmp_path), 2)
    chosen = strategy(method=gf.Dense(), fraction_train=1.0)
    with by_hand(chosen, grid, 3) as play:
        for number, (old, new, lost) in enumerate([(100, 100, True), (100, 500, False), (500, 100, False)], start=1):
            if old != new:
                grid.restart(old, new)
            grid.fate = (lambda m, r: None if m.metadata.dst_node_id == 100 else r) if lost else arrives
            play(number)
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

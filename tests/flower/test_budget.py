"""Byte budgets over Flower: the server's, a node's own, and what goes wrong with them."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message
from flwr.serverapp.strategy import FedAvg

import gammafl as gf
import gammafl.flower
from gammafl import seeds
from gammafl.core.arrays import Vector
from gammafl.core.wire import encode
from gammafl.federated import exchange
from tests.flower.books import check_books
from tests.flower.grid import InProcessGrid
from tests.flower.problem import quadratic_app, run, strategy, to_record
from tests.flower.spoil import BAD_NODE, with_payload
from tests.problems import METHODS, Quadratic

ONE_NODE = partial(FedAvg, fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)


@pytest.mark.parametrize("name", ["fedavg", "top-k", "stc", "gamma-fedht-q"])
def test_no_upload_is_longer_than_the_budget_and_nothing_is_lost(
    name: str, tmp_path: Path, applied: dict[str, Vector]
) -> None:
    task, sizes = Quadratic(), list[int]()

    def sometimes(message: Message, reply: Message) -> Message | None:
        sizes.append(len(reply.content.array_records["arrays"]["update"].data))
        return None if len(sizes) % 7 == 0 else reply

    chosen, _, _ = run(tmp_path, 20, task, sometimes, method=METHODS[name], fraction_train=1.0, budget="17 B/upload")
    assert max(sizes) <= 17
    assert any(record.get("capped") for record in chosen.history)
    check_books(task, tmp_path, chosen, applied, "0123")


def test_whoever_sends_more_is_refused(tmp_path: Path) -> None:
    def too_much(message: Message, reply: Message) -> Message:
        if message.metadata.dst_node_id == BAD_NODE:
            with_payload(encode(gf.SparseUpdate(50, None, np.arange(50) / 7)))(reply.content)
        return reply

    chosen, _, _ = run(tmp_path, 3, fate=too_much, method="top-k", fraction_train=1.0, budget="60 B/upload")
    assert all("60 are allowed" in record["refused"][str(BAD_NODE)] for record in chosen.history)


@pytest.mark.parametrize("method", [gf.top_k(keep=0.2), gf.gamma_fedht(keep=0.2, level="run")], ids=str)
def test_a_run_comes_to_its_bytes(method: gf.Method, tmp_path: Path) -> None:
    chosen, _, _ = run(tmp_path, 200, method=method, fraction_train=0.5, budget="20 kB/run")
    assert abs(sum(record["uplink_bytes"] for record in chosen.history) / 20_000 - 1) < 0.02


def with_node_budgets(directory: Path, budgets: dict[int, Any], rounds: int, seconds: Any = None) -> tuple[Any, Any]:
    """A run of four nodes, some with a budget in their own configuration; the strategy, and each node's bytes."""
    task, sizes = Quadratic(), dict[int, list[int]]()

    def look(message: Message, reply: Message) -> Message:
        if reply.has_content():
            node = message.metadata.dst_node_id
            sizes.setdefault(node, []).append(len(reply.content.array_records["arrays"]["update"].data))
        return reply

    grid = InProcessGrid(quadratic_app(task, directory), 4, look)
    for node, budget in budgets.items():
        grid.contexts[node].node_config["gammafl-budget"] = budget
    chosen = strategy(method=gf.fedavg(), fraction_train=1.0)
    model = to_record(task, task.initial_model(seeds.generator(0, "model")))
    chosen.start(grid, model, rounds, train_config=ConfigRecord())
    return chosen, sizes


def test_a_node_keeps_to_its_own_budget(tmp_path: Path) -> None:
    chosen, sizes = with_node_budgets(tmp_path, {100: "60 B/upload"}, 5)
    assert max(sizes[100]) <= 60 < min(sizes[101])
    assert [record["capped"] for record in chosen.history] == [1] * 5
    assert all(len(record["clients"]) == 4 for record in chosen.history)


def test_a_nodes_rate_goes_by_the_time_between_its_uploads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock is 10 s after the last one; four nodes look once an upload, and once when they begin."""
    now = [1e9]

    def clock() -> float:
        now[0] += 10
        return now[0]

    monkeypatch.setattr(exchange, "wall_clock", clock)
    _, sizes = with_node_budgets(tmp_path, {100: "2 B/s"}, 6)
    assert min(sizes[100]) < max(sizes[100]) < min(sizes[101])
    assert sum(sizes[100]) <= 2 * (now[0] - 1e9)
    assert all(30 < size <= 2 * 80 for size in sizes[100][1:])


def test_a_node_under_a_new_id_every_round_keeps_to_its_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1e9]

    def clock() -> float:
        now[0] += 10
        return now[0]

    monkeypatch.setattr(exchange, "wall_clock", clock)
    sizes = list[int]()

    def look(message: Message, reply: Message) -> Message:
        node = message.metadata.dst_node_id
        sizes.append(len(reply.content.array_records["arrays"]["update"].data))
        grid.restart(node, node + 1000)
        return reply

    grid = InProcessGrid(quadratic_app(Quadratic(), tmp_path), 1, look)
    grid.contexts[100].node_config["gammafl-budget"] = "2 B/s"
    restart = grid.restart

    def with_budget(node: int, new_address: int) -> None:
        restart(node, new_address)
        grid.contexts[new_address].node_config["gammafl-budget"] = "2 B/s"

    monkeypatch.setattr(grid, "restart", with_budget)
    chosen = gammafl.flower.Compressed(ONE_NODE(), gf.fedavg())
    chosen.start(grid, to_record(Quadratic(), np.zeros(50, np.float32)), 8, train_config=ConfigRecord({"lr": 0.1}))
    assert len(sizes) == 8
    assert 8 * 14 < sum(sizes) <= 2 * (now[0] - 1e9)


def test_an_upload_that_a_server_asks_for_again_is_paid_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one does that died in between. All that the next round may hold is what the link has room for then."""
    now = [1e9]
    monkeypatch.setattr(exchange, "wall_clock", lambda: now[0])
    sizes = list[int]()

    def thrice(message: Message, reply: Message) -> Message:
        for again in range(3 if len(sizes) == 1 else 1):
            answer = grid.app(message, grid.contexts[100]) if again else reply
            sizes.append(len(answer.content.array_records["arrays"]["update"].data))
        now[0] += 40
        return reply

    grid = InProcessGrid(quadratic_app(Quadratic(), tmp_path / "clients"), 1, thrice)
    grid.contexts[100].node_config["gammafl-budget"] = "3 B/s"
    chosen = gammafl.flower.Compressed(ONE_NODE(), gf.fedavg(), checkpoint=tmp_path / "server")
    chosen.start(grid, to_record(Quadratic(), np.zeros(50, np.float32)), 7, train_config=ConfigRecord({"lr": 0.1}))
    assert len(sizes) == 7 + 2
    assert sizes[1] == sizes[2] == sizes[3] > 80
    assert sizes[4] < 20  # no room at all, as it owes two uploads
    assert sum(sizes) <= 3 * (now[0] - 1e9)


def test_a_node_with_a_budget_that_is_none_says_so(tmp_path: Path) -> None:
    with pytest.raises(gf.InputError, match="a budget is written as"):
        with_node_budgets(tmp_path, dict.fromkeys((100, 101, 102, 103), "much"), 2)
    with pytest.raises(gf.InputError, match="per upload"):
        with_node_budgets(tmp_path, dict.fromkeys((100, 101, 102, 103), "3 MB/run"), 2)
    with pytest.raises(gf.InputError, match="no upload fits into 10 bytes"):
        with_node_budgets(tmp_path, dict.fromkeys((100, 101, 102, 103), "10 B/upload"), 2)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"budget": "13 B/upload"}, "no upload fits into 13 bytes"),
        ({"budget": "1 MB/run", "method": "fedavg"}, "use gamma-fedht, top-k or similar"),
        ({"budget": "64 kb/upload"}, "'kb' is not a unit"),
        ({"budget": "1 kB/s, 3 s/round"}, "leave out s/round"),
        ({"budget": "1 kB/run"}, "allow more"),
    ],
    ids=str,
)
def test_an_impossible_budget_is_an_error_at_the_start(settings: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(gf.InputError, match=said):
        run(tmp_path, 40, **{"method": "top-k", "fraction_train": 1.0, **settings})

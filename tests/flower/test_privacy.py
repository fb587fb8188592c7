"""Differential privacy over Flower: FedAvg's step is the sum of bounded uploads with noise, by the number asked."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message
from flwr.serverapp.strategy import FedAdam, FedAvg, FedMedian, Result

import gammafl as gf
import gammafl.flower
from gammafl import seeds
from gammafl.core.arrays import Vector
from gammafl.core.wire import encode
from gammafl.federated import server_exchange
from tests.flower.books import check_books, computed, remembered
from tests.flower.grid import InProcessGrid
from tests.flower.problem import by_hand, quadratic_app, run, strategy, to_record
from tests.flower.spoil import BAD_NODE, with_payload
from tests.flower.test_resumption import DeadError
from tests.problems import METHODS, Quadratic

pytest.importorskip("dp_accounting")

PRIVACY = gf.Privacy(clip=0.5, noise=1.0)


def no_noise(count: int) -> Any:
    return np.zeros(count)


@pytest.mark.parametrize("name", ["fedavg", "top-k", "stc"])
def test_the_model_moves_by_equal_parts_of_what_was_sent(
    name: str, tmp_path: Path, applied: dict[str, Vector], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although clients have different numbers of samples; what the clip holds back is on their disks."""
    monkeypatch.setattr(server_exchange, "unpredictable", no_noise)
    task, start = Quadratic(), Quadratic().initial_model(seeds.generator(0, "model"))
    chosen, _, model = run(tmp_path, 6, task, method=METHODS[name], fraction_train=1.0, privacy=PRIVACY)
    assert [len(record["clients"]) for record in chosen.history] == [4] * 6
    rest = remembered(tmp_path, chosen)
    parts = [computed(task, client) - rest[client] for client in "0123"]
    np.testing.assert_allclose(start - model, sum(parts) / 4, atol=1e-5)
    assert chosen.epsilon() == PRIVACY.epsilon(6)


def test_a_client_that_sends_more_than_the_clip_counts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_exchange, "unpredictable", no_noise)

    def too_much(message: Message, reply: Message) -> Message:
        if message.metadata.dst_node_id == BAD_NODE:
            with_payload(encode(gf.SparseUpdate(50, None, np.full(50, 7.0))))(reply.content)
        return reply

    start = Quadratic().initial_model(seeds.generator(0, "model"))
    chosen, _, model = run(tmp_path, 3, fate=too_much, method="fedavg", fraction_train=1.0, privacy=PRIVACY)
    assert [record["clients"] for record in chosen.history] == [["0", "1", "3"]] * 3
    assert np.linalg.norm(start - model) <= 3 * 3 * PRIVACY.clip / 4 * (1 + 1e-6)


def test_a_reply_that_looks_different_does_not_change_what_others_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without privacy the form that most replies have decides."""
    monkeypatch.setattr(server_exchange, "unpredictable", no_noise)

    def odd(message: Message, reply: Message) -> Message:
        if message.metadata.dst_node_id in (100, 101):
            reply.content["other"] = ArrayRecord({"one": Array(np.zeros(1, np.float32))})
        return reply

    chosen, _, _ = run(tmp_path, 2, fate=odd, method="fedavg", fraction_train=1.0, privacy=PRIVACY)
    assert [len(record["clients"]) for record in chosen.history] == [4, 4]


def test_no_client_is_sent_what_the_server_knows_of_others_that_are_gone(
    tmp_path: Path, applied: dict[str, Vector]
) -> None:
    """Their receipts hold a checksum of what they sent, without noise. Who came back sends its upload again instead."""
    task = Quadratic()
    grid = InProcessGrid(quadratic_app(task, tmp_path), 4)
    chosen = strategy(method=METHODS["top-k"], fraction_train=1.0, privacy=PRIVACY)
    with by_hand(chosen, grid, 5) as play:
        for number in range(1, 6):
            play(number)
            if number < 4:
                grid.restart(99 + number, 499 + number)
    assert not any("absent" in message.content.config_records["gammafl"] for message in grid.sent)
    check_books(task, tmp_path, chosen, applied, "0123")


def test_noise_comes_also_in_a_round_that_nobody_answers(tmp_path: Path) -> None:
    def silent_later(message: Message, reply: Message) -> Message | None:
        return reply if int(message.content["config"]["server-round"]) == 1 else None  # type: ignore[arg-type]

    models = [
        run(tmp_path / str(rounds), rounds, fate=silent_later, method="fedavg", fraction_train=1.0, privacy=privacy)[2]
        for rounds, privacy in [(1, gf.Privacy(0.5, 1e-6)), (2, gf.Privacy(0.5, 1e-6)), (2, gf.Privacy(0.5, 40.0))]
    ]
    assert 0 < np.abs(models[1] - models[0]).max() < 1e-5
    assert 2 < (models[2] - models[0]).std() < 20  # 2 rounds of 40·0.5/4 are 7.1


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: gammafl.flower.Compressed(FedMedian(), privacy=PRIVACY), "plain FedAvg"),
        (lambda: gammafl.flower.Compressed(FedAdam(), privacy=PRIVACY), "Flower's own DP wrappers"),
        (lambda: gammafl.flower.Compressed(FedAvg(), privacy=PRIVACY, accept_whole=True), "compressed updates"),
        (lambda: gammafl.flower.Compressed(FedAvg(), privacy=PRIVACY, replies="update"), "compressed updates"),
        (lambda: gammafl.flower.Compressed(FedAvg(), privacy=PRIVACY, min_accepted=2), "how many clients answered"),
        (lambda: gammafl.flower.Compressed(FedAvg(), privacy=PRIVACY, enabled=False), "enabled=False switches it off"),
    ],
)
def test_what_would_add_up_without_noise_is_refused(make: Any, reason: str) -> None:
    with pytest.raises(gf.InputError, match=reason):
        make()


def test_limits_that_are_learnt_are_refused(tmp_path: Path) -> None:
    limits = gf.Limits(learnt_norm=4.0)
    with pytest.raises(gf.InputError, match="a learnt norm"):
        run(tmp_path, 2, method="fedavg", fraction_train=1.0, privacy=PRIVACY, limits=limits)


class Publishing(FedAvg):
    """Shows each model to the world as soon as it is made, before anything else happens."""

    shown: list[Vector]

    def start(self, grid: Any, initial_arrays: ArrayRecord, num_rounds: int = 3, **others: Any) -> Result:  # type: ignore[override]
        arrays, result = initial_arrays, Result()
        for number in range(1, num_rounds + 1):
            messages = self.configure_train(number, arrays, ConfigRecord({"lr": 0.1}), grid)
            made, _ = self.aggregate_train(number, grid.send_and_receive(messages))
            if made is not None:
                result.arrays = arrays = made
                self.published(made)
        return result

    def published(self, model: ArrayRecord) -> None: ...


def test_after_a_restart_the_same_uploads_get_no_other_noise(tmp_path: Path) -> None:
    """Two models of the same uploads with independent noise would tell more than ε counts."""
    shown: list[dict[str, bytes]] = []
    task = Quadratic()

    class DyingAsItPublishes(Publishing):
        def published(self, model: ArrayRecord) -> None:
            shown.append({name: array.data for name, array in model.items()})
            if len(shown) == 1:
                raise DeadError

    def start() -> Any:
        chosen = gammafl.flower.Compressed(
            DyingAsItPublishes(), "fedavg", privacy=PRIVACY, checkpoint=tmp_path / "server"
        )
        chosen.start(grid, to_record(task, np.zeros(50, np.float32)), 1)
        return chosen

    grid = InProcessGrid(quadratic_app(task, tmp_path / "clients"), 4)
    with pytest.raises(DeadError):
        start()
    assert start().epsilon() == PRIVACY.epsilon(1)
    assert len(shown) == 2
    assert shown[0] == shown[1]


def test_whether_there_is_a_result_does_not_tell_that_somebody_answered(tmp_path: Path) -> None:
    chosen, _, model = run(tmp_path, 2, fate=lambda *_: None, method="fedavg", fraction_train=1.0, privacy=PRIVACY)
    assert [record["clients"] for record in chosen.history] == [[], []]
    assert np.isfinite(model).all()


class EndsBeforeIt(gf.Callback):
    """Before the first round there is nothing to learn from, nor anything that a client has told."""

    def on_start(self, run: gf.Run) -> str:
        return "not today"


def test_a_training_that_ends_before_its_first_round_has_cost_nothing(tmp_path: Path) -> None:
    chosen, _, _ = run(tmp_path, 2, method="fedavg", privacy=PRIVACY, callbacks=[EndsBeforeIt()])
    assert (chosen.epsilon(), chosen.history) == (0.0, [])

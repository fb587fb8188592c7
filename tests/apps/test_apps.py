"""Apps in the patterns of public ones, with the two lines: what is kept, that they learn, restarts and losses."""

import math
import random
import secrets
from collections import defaultdict
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, Context, Message, MessageType

import gammafl as gf
import gammafl.flower
from gammafl.core.arrays import Vector
from gammafl.flower.layout import Layout
from tests.apps.app import App, initial_arrays
from tests.apps.catalogue import APPS
from tests.apps.data import CLIENTS
from tests.apps.runs import Played, play, vector_of
from tests.flower.books import remembered

KEEP, ROUNDS = 0.01, 6
METHODS = {
    "gamma-fedht-q": gf.gamma_fedht_q(keep=KEEP),
    "gamma-fedht": gf.gamma_fedht(keep=KEEP),
    "top-k": gf.top_k(keep=KEEP),
}
every_app = pytest.mark.parametrize("app", APPS.values(), ids=APPS)


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    """Small models are quicker so, and sums are always in one order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def planned(app: App, method: str) -> int:
    """Entries of each upload: the planned fraction of what is compressed, and all running statistics."""
    floats = {name: array.numpy() for name, array in initial_arrays(app, 0).items()}
    whole = sum(values.size for name, values in floats.items() if "running_" in name)
    counters = sum(values.size for name, values in floats.items() if "num_batches" in name)
    size = sum(values.size for values in floats.values()) - whole - counters
    assert size >= 50_000
    return whole + (math.ceil(KEEP * size) if method == "top-k" else round(KEEP * size))


def fell(played: Played) -> bool:
    """Whether the loss on the clients' data is lower than before the first round."""
    losses = played.scores("train_loss")
    return losses[max(losses)] < losses[0]


@every_app
def test_without_the_two_lines_an_app_learns_and_sends_whole_models(app: App) -> None:
    played = play(app, None, ROUNDS, score_at={0, ROUNDS})
    assert fell(played)
    assert [upload.kept for upload in played.uploads] == [None] * ROUNDS * CLIENTS


@every_app
@pytest.mark.parametrize("name", METHODS)
def test_with_the_two_lines_every_upload_keeps_what_is_planned_and_the_app_learns(app: App, name: str) -> None:
    played = play(app, METHODS[name], ROUNDS, score_at={0, ROUNDS})
    assert [upload.kept for upload in played.uploads] == [planned(app, name)] * ROUNDS * CLIENTS
    assert isinstance(played.strategy, gammafl.flower.Compressed)
    assert [len(record["clients"]) for record in played.strategy.history] == [CLIENTS] * ROUNDS
    assert not np.array_equal(vector_of(played.model), vector_of(initial_arrays(app, 0)))
    assert fell(played)


@every_app
def test_updates_a_thousand_times_smaller_change_no_count(app: App) -> None:
    played = play(app.scaled(1e-3), METHODS["gamma-fedht-q"], 2, score_at=())
    assert {upload.kept for upload in played.uploads} == {planned(app, "gamma-fedht-q")}


def same_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients draw among equal magnitudes by their random names: the next run has the same ones as the last."""
    numbers = count()
    monkeypatch.setattr(secrets, "token_hex", lambda size: f"{next(numbers):0{2 * size}x}")


@every_app
def test_clients_that_all_restart_in_the_middle_train_the_same_model(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New addresses, a new app, nothing in memory, the same disks."""
    models = []
    for restart_after in (None, 2):
        same_names(monkeypatch)
        folder = tmp_path / str(restart_after)
        played = play(app, METHODS["gamma-fedht-q"], 4, state_dir=folder, score_at={4}, restart_after=restart_after)
        models.append(vector_of(played.model))
    np.testing.assert_array_equal(models[0], models[1])


@pytest.mark.parametrize("app", [app for app in APPS.values() if app.linear], ids=lambda app: app.name)
def test_where_a_third_of_the_replies_is_lost_no_update_is(
    app: App, tmp_path: Path, applied: dict[str, Vector]
) -> None:
    """All that a client computed is in the model or on its disk."""
    chance, computed = random.Random(3), defaultdict[str, Any](float)

    def fate(message: Message, reply: Message) -> Message | None:
        return reply if chance.random() > 1 / 3 else None

    def note(message: Message, context: Context, call_next: Any) -> Message:
        before = floats_of(message.content.array_records["arrays"])
        reply: Message = call_next(message, context)
        if message.metadata.message_type == MessageType.TRAIN:
            after = floats_of(reply.content.array_records["arrays"])
            computed[str(context.node_config["partition-id"])] += before - after
        return reply

    played = play(app, METHODS["gamma-fedht-q"], ROUNDS, state_dir=tmp_path, fate=fate, inner=[note], score_at=())
    assert isinstance(played.strategy, gammafl.flower.Compressed)
    assert any(len(record["clients"]) < CLIENTS for record in played.strategy.history)
    rest = remembered(tmp_path, played.strategy)
    assert computed.keys() == rest.keys() == {str(client) for client in range(CLIENTS)}
    for client, total in computed.items():
        np.testing.assert_allclose(applied[client] + rest[client], total, atol=1e-5 * np.abs(total).max())


def floats_of(record: ArrayRecord) -> Vector:
    """In the order of the flat vector."""
    return Layout.of(record).flatten(record, "the model").astype(np.float64)


def test_evaluate_functions_are_asked_as_often_and_find_the_same_metrics_as_without_the_two_lines() -> None:
    before, after = (play(APPS["evaluate"], method, 2).result for method in (None, METHODS["gamma-fedht-q"]))
    for one, other in (
        (before.evaluate_metrics_serverapp, after.evaluate_metrics_serverapp),
        (before.evaluate_metrics_clientapp, after.evaluate_metrics_clientapp),
    ):
        assert {number: set(metrics) for number, metrics in one.items()} == {
            number: set(metrics) for number, metrics in other.items()
        }
    assert list(after.evaluate_metrics_serverapp) == [0, 1, 2]
    assert list(after.evaluate_metrics_clientapp) == [1, 2]

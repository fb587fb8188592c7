"""Residuals in memory and on disk."""

from pathlib import Path

import numpy as np

import gammafl as gf
from gammafl.federated.residuals import ResidualStore

DIM = 100


def test_a_thousand_clients_on_disk_take_a_few_files_and_do_not_share_memory(tmp_path: Path) -> None:
    store = ResidualStore(gf.hard_threshold(threshold=1e9), DIM, budget_bytes=0, folder=tmp_path)
    for client in range(1000):
        store.outbox(client).memory.propose(np.full(DIM, client + 1, np.float32), gf.Moment())
    assert len(list(tmp_path.iterdir())) <= 12
    for client, residual in store.residuals().items():
        np.testing.assert_array_equal(residual, client + 1)


def test_only_what_the_budget_leaves_no_room_for_goes_to_disk(tmp_path: Path) -> None:
    store = ResidualStore(gf.top_k(k=1), DIM, budget_bytes=4 * DIM * 3, folder=tmp_path)
    for client in range(3):
        store.outbox(client)
    assert not list(tmp_path.iterdir())
    store.outbox(3)
    assert list(tmp_path.iterdir())

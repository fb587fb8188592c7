"""Numbered uploads: whatever is lost, repeated or forgotten on the way, each update counts exactly once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gammafl as gf
from gammafl.core.compressors import Compressor
from gammafl.federated.client import Outbox
from gammafl.federated.receipts import Receipt, Receipts, Sender
from gammafl.tasks.base import LocalUpdate
from tests.problems import METHODS

DIM = 20
SENDER = Sender("3", "first")
FATES = ("arrives", "is lost", "arrives, address forgotten", "is lost, address forgotten")


def grid_values(seed: int) -> np.ndarray:
    """Multiples of 1/64, so that sums in float32 are exact."""
    return (np.random.default_rng(seed).integers(-64, 65, DIM) / 64).astype(np.float32)


def exact(method: Compressor) -> bool:
    return not repr(method).startswith("Ternary")


@pytest.mark.parametrize("name", METHODS)
@given(fates=st.lists(st.sampled_from(FATES), max_size=12))
def test_what_was_computed_is_applied_once_or_remembered(name: str, fates: list[str]) -> None:
    method = METHODS[name]
    receipts, outbox = Receipts(), Outbox(gf.ErrorFeedback(method, DIM))
    computed, applied = np.zeros(DIM, np.float64), np.zeros(DIM, np.float64)
    for round_number, fate in enumerate(fates):
        address = round_number if "forgotten" in fate else 0
        delta = grid_values(round_number)
        computed += delta
        receipt = receipts.receipt(address)
        if receipt is None and outbox.open is not None:
            payload = outbox.send_again(LocalUpdate(delta, 0.0))
        else:
            outbox.settle(receipt.accepted if receipt else 0)
            payload = outbox.send(LocalUpdate(delta, 0.0), 5 * round_number + 5)
        if "arrives" in fate:
            receipts.met(address, SENDER)
            if receipts.refusal(SENDER, outbox.number) is None:
                receipts.accept(SENDER, outbox.number)
                applied += gf.decode(payload).dense()
    outbox.settle(receipts.last(SENDER))
    tolerance = 0 if exact(method) else 1e-5
    np.testing.assert_allclose(applied + outbox.memory.residual, computed, rtol=0, atol=tolerance)


def test_a_replay_is_refused_and_the_next_upload_is_not() -> None:
    receipts = Receipts()
    receipts.accept(SENDER, 2)
    assert "came after" in str(receipts.refusal(SENDER, 2))
    assert receipts.refusal(SENDER, 1) is not None
    assert receipts.refusal(SENDER, 3) is None
    assert receipts.refusal(Sender("4", "first"), 2) is None


def test_an_address_is_known_by_whoever_answered_last() -> None:
    receipts = Receipts()
    assert receipts.receipt(7) is None
    receipts.met(7, SENDER)
    assert receipts.receipt(7) == Receipt("first", 0)
    receipts.accept(SENDER, 5)
    assert receipts.receipt(7) == Receipt("first", 5)


def test_a_client_that_lost_its_disk_is_told_of_once_and_counts_from_the_start() -> None:
    receipts = Receipts()
    assert receipts.met(7, SENDER) is None
    receipts.accept(SENDER, 5)
    clean = Sender("3", "second")
    assert "lost its stored state" in str(receipts.met(8, clean))
    assert receipts.met(8, clean) is None
    assert receipts.refusal(clean, 1) is None


def test_somebody_who_takes_a_clients_name_does_not_take_its_receipts() -> None:
    receipts = Receipts()
    receipts.met(7, SENDER)
    receipts.accept(SENDER, 5)
    receipts.met(8, Sender("3", "thief"))
    receipts.accept(Sender("3", "thief"), 900)
    assert receipts.receipt(7) == Receipt("first", 5)
    assert receipts.refusal(SENDER, 6) is None

"""Numbered uploads: whatever is lost, repeated or forgotten on the way, each update counts exactly once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gammafl as gf
from gammafl.core.layout import Layout
from gammafl.core.memory import Residual
from gammafl.federated.client import Outbox
from gammafl.federated.exchange import Answer
from gammafl.federated.receipts import Receipt, Receipts, Sender, digest
from gammafl.federated.server_exchange import ServerExchange
from gammafl.federated.task import LocalUpdate
from tests.problems import METHODS, STEPSIZE

DIM = 20
SCHEDULE = gf.Schedule(STEPSIZE, iterations=200)
SENDER = Sender("3", "first")
FATES = ("arrives", "is lost", "arrives, address forgotten", "is lost, address forgotten")


def grid_values(seed: int) -> np.ndarray:
    """Multiples of 1/64, so that sums in float32 are exact."""
    return (np.random.default_rng(seed).integers(-64, 65, DIM) / 64).astype(np.float32)


def absent_receipt(receipts: Receipts, address: int) -> Receipt | None:
    """What a client finds of itself where only its `address` is connected."""
    entries = {name: Receipt(SENDER.incarnation, *last) for name, *last in receipts.absent({address}, 10)}
    return entries.get(digest(SENDER.incarnation))


def exact(method: gf.Method) -> bool:
    return method.values.exact


@pytest.mark.parametrize("name", METHODS)
@given(fates=st.lists(st.sampled_from(FATES), max_size=12))
def test_what_was_computed_is_applied_once_or_remembered(name: str, fates: list[str]) -> None:
    method = METHODS[name]
    memory = Residual(method, DIM)
    receipts, outbox = Receipts(), Outbox(memory)
    computed, applied = np.zeros(DIM, np.float64), np.zeros(DIM, np.float64)
    for round_number, fate in enumerate(fates):
        address = round_number if "forgotten" in fate else 0
        delta = grid_values(round_number)
        computed += delta
        receipt = receipts.receipt(address) or absent_receipt(receipts, address)
        if receipt is None and outbox.open is not None:
            payload = outbox.send_again(LocalUpdate(delta, 0.0))
        else:
            outbox.settle(receipt.accepted if receipt else 0)
            payload = outbox.send(LocalUpdate(delta, 0.0), SCHEDULE.moment(5 * round_number + 5))
        if "arrives" in fate:
            receipts.met(address, SENDER)
            if receipts.refusal(SENDER, outbox.number) is None:
                receipts.accept(address, SENDER, outbox.number)
                applied += gf.decode(payload).dense()
    outbox.settle(receipts.last(SENDER))
    tolerance = 0 if exact(method) else 1e-5
    np.testing.assert_allclose(applied + memory.residual, computed, rtol=0, atol=tolerance)


def test_a_replay_is_refused_and_the_next_upload_is_not() -> None:
    receipts = Receipts()
    receipts.accept(7, SENDER, 2)
    assert "came after" in str(receipts.refusal(SENDER, 2))
    assert receipts.refusal(SENDER, 1) is not None
    assert receipts.refusal(SENDER, 3) is None
    assert receipts.refusal(Sender("3", "second"), 2) is None
    assert receipts.refusal(Sender("4", "first"), 2) is not None  # the state of client 3 under another name


def test_an_address_is_known_by_whoever_answered_last() -> None:
    receipts = Receipts()
    assert receipts.receipt(7) is None
    receipts.met(7, SENDER)
    assert receipts.receipt(7) == Receipt("first", 0)
    receipts.accept(7, SENDER, 5)
    assert receipts.receipt(7) == Receipt("first", 5)


def test_a_client_that_lost_its_disk_is_told_of_once_and_counts_from_the_start() -> None:
    receipts = Receipts()
    assert receipts.met(7, SENDER) is None
    receipts.accept(7, SENDER, 5)
    clean = Sender("3", "second")
    assert "lost its stored state" in str(receipts.met(7, clean))
    assert receipts.met(7, clean) is None
    assert receipts.refusal(clean, 1) is None
    assert receipts.label(7, clean) == "3"


def test_somebody_who_takes_a_clients_name_takes_neither_its_receipts_nor_its_name() -> None:
    receipts, thief = Receipts(), Sender("3", "thief")
    receipts.met(7, SENDER)
    receipts.accept(7, SENDER, 5)
    assert "as node 7 does" in str(receipts.met(8, thief))
    receipts.accept(8, thief, 900)
    assert receipts.met(8, thief) is None
    assert receipts.met(7, SENDER) is None
    assert receipts.receipt(7) == Receipt("first", 5)
    assert receipts.refusal(SENDER, 6) is None
    assert (receipts.label(7, SENDER), receipts.label(8, thief)) == ("3", "3@8")


def test_a_client_keeps_its_name_when_its_address_changes() -> None:
    receipts = Receipts()
    receipts.met(7, SENDER)
    assert receipts.met(9, SENDER) is None
    assert receipts.label(9, SENDER) == "3"


def test_clients_whose_address_is_gone_are_listed_the_latest_first() -> None:
    receipts, senders = Receipts(), [Sender(str(i), f"incarnation-{i}") for i in range(5)]
    for address in (0, 1, 2, 3, 4, 1):
        receipts.accept(address, senders[address], address + 1)
    names = [name for name, _, _ in receipts.absent({3}, 3)]
    assert names == [digest(f"incarnation-{i}") for i in (1, 4, 2)]


def test_an_upload_that_was_handed_over_is_not_dropped_for_a_later_copy() -> None:
    """Replies come in portions, and two addresses have copies of one client's state: one of them counts."""
    exchange = ServerExchange(gf.fedavg(), SCHEDULE, Layout.flat(DIM))
    payload = gf.encode(gf.SparseUpdate(DIM, [1], [1.0]))
    answer = Answer(name="a", incarnation="x", round=1, number=1)
    for address in (1, 2):
        exchange.offer(address)
    handed = exchange.accept(1, answer, payload)
    assert exchange.settle_contests() == {}
    exchange.receipts.accept(2, answer.who, 0)  # the other address is the sender's home
    exchange.accept(2, answer, payload)
    assert list(exchange.settle_contests()) == [2]
    assert exchange.arrivals == [handed]

"""`gf.Client` and `gf.Server` with a memory that both sides share: losses, restarts of either, uploads sent again."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gammafl as gf
from gammafl.core.shifts import MirrorOfEach

DIM = 80
SCHEDULE = gf.Schedule(gf.InverseDecay(10, 20), iterations=200)
METHODS = {
    "each": gf.gamma_fedht_s(initial_threshold=0.5, rate=0.2, server="each"),
    "sum": gf.gamma_fedht_s(initial_threshold=0.5, rate=0.2),
    "EF21, each": gf.ef21(keep=0.1, server="each"),
    "EF21, sum": gf.ef21(keep=0.1),
    "DGC": gf.dgc(keep=0.1, scope="global", momentum=0.3),
}


class Fleet:
    """Three clients that pull towards centres of their own, and a server; any of them may be made anew."""

    def __init__(self, method: gf.Method, like: Any = DIM) -> None:
        self.method, self.like = method, like
        self.server = gf.Server(method, SCHEDULE, like=like)
        self.clients = {name: gf.Client(name, method, like=like) for name in "abc"}
        rng = np.random.default_rng(0)
        self.centres = {name: 3 * rng.standard_normal(DIM).astype(np.float32) for name in "abc"}
        self.model = np.zeros(DIM, np.float32)

    def round(self, number: int, lost: Any = ()) -> None:
        step = np.float32(SCHEDULE.stepsize(number))
        for name, client in self.clients.items():
            offer = self.server.offer(name)
            start = client.begin(self.model, offer)
            upload = client.encode(start, start - step * (start - self.centres[name]), offer)
            if name not in lost:
                self.server.accept(name, upload, weight=1 + ord(name) - ord("a"))
        self.server.step(self.model)

    def restart_client(self, name: str, path: Path) -> None:
        self.clients[name].save(path)
        self.clients[name] = gf.Client(name, self.method, like=self.like)
        self.clients[name].load(path)

    def restart_server(self) -> None:
        saved = self.server.state_dict()
        self.server = gf.Server(self.method, SCHEDULE, like=self.like)
        self.server.load_state_dict(saved)


WITH_STATISTICS = {"weight": np.zeros(DIM - 20, np.float32), "running_var": np.zeros(20, np.float32)}


@pytest.mark.parametrize("like", [DIM, WITH_STATISTICS], ids=["a vector", "with statistics"])
@pytest.mark.parametrize("name", METHODS)
def test_restarts_of_clients_and_server_change_nothing(name: str, like: Any, tmp_path: Path) -> None:
    plain, restarted, chance = Fleet(METHODS[name], like), Fleet(METHODS[name], like), random.Random(1)
    for number in range(40):
        lost = [client for client in "abc" if chance.random() < 0.25]
        plain.round(number, lost)
        restarted.round(number, lost)
        restarted.restart_client(chance.choice("abc"), tmp_path / "client")
        restarted.restart_server()
    # keys are drawn by incarnation, which differs; none of these methods uses them
    assert restarted.model.tobytes() == plain.model.tobytes()


@pytest.mark.parametrize("name", METHODS)
def test_it_learns_where_uploads_get_lost(name: str) -> None:
    fleet, chance = Fleet(METHODS[name]), random.Random(2)
    for number in range(200):
        fleet.round(number, [client for client in "abc" if chance.random() < 0.2])
    goal = sum((1 + i) * fleet.centres[client] for i, client in enumerate("abc")) / 6
    assert np.linalg.norm(fleet.model - goal) < 0.35 * np.linalg.norm(goal)


def test_a_server_whose_mirror_is_of_another_model_is_refused() -> None:
    fleet = Fleet(METHODS["each"])
    fleet.round(0)
    saved = fleet.server.state_dict()
    saved["mirror"]["vectors"] = {name: vector[:-1] for name, vector in saved["mirror"]["vectors"].items()}
    with pytest.raises(gf.InputError, match="not a state of a server"):
        fleet.server.load_state_dict(saved)


def test_an_upload_that_is_sent_again_counts_with_the_step_of_the_round_it_was_made_in() -> None:
    """The client comes back under another name of the network, so that the server can't tell what it has."""
    fleet = Fleet(METHODS["each"])
    for number in range(10):
        fleet.round(number)
    client, server = fleet.clients["a"], fleet.server
    client.encode(fleet.model, fleet.model - 1, server.offer("a"))  # never arrives
    server.step(fleet.model)
    state = client._state
    state.address = 0  # from several addresses
    offer = server.offer("elsewhere")
    upload = client.encode(fleet.model, fleet.model - 1, offer)
    made = state.outbox.made
    assert server.accept("elsewhere", upload)
    (arrival,) = server._exchange.arrivals
    assert arrival.answer.again
    assert made == offer.round - 1
    assert arrival.step == state.outbox.step == SCHEDULE.step(made - 1, 1)
    server.step(fleet.model)
    client.begin(fleet.model, server.offer("elsewhere"))
    assert isinstance(server._exchange.mirror, MirrorOfEach)
    mirrored = server._exchange.mirror.shift_of(state.incarnation)
    assert mirrored.tobytes() == state.outbox.memory.state()["shift"].tobytes()


@pytest.mark.parametrize("made", [0, 99])
def test_a_client_can_not_choose_a_round_that_never_was(made: int) -> None:
    fleet = Fleet(METHODS["each"])
    client, server = fleet.clients["a"], fleet.server
    client.encode(fleet.model, fleet.model - 1, server.offer("a"))
    server.step(fleet.model)
    client._state.address, client._state.outbox.made = 0, made
    upload = client.encode(fleet.model, fleet.model - 1, server.offer("elsewhere"))
    with pytest.raises(gf.WireError, match="in round 2"):
        server.accept("elsewhere", upload)


def test_a_state_without_its_shift_is_refused() -> None:
    """With a shift of zeros in its place the two sides would differ for ever."""
    fleet = Fleet(METHODS["each"])
    fleet.round(0)
    saved = fleet.clients["a"].state_dict()
    del saved["tensors"]["shift"]
    with pytest.raises(gf.InputError, match="belong together"):
        gf.Client("a", fleet.method, like=DIM).load_state_dict(saved)


def test_a_stored_step_beyond_what_an_offer_says_is_refused() -> None:
    fleet = Fleet(METHODS["each"])
    fleet.round(0)
    saved = fleet.clients["a"].state_dict()
    saved["facts"]["step"] = 1e300
    with pytest.raises(gf.InputError, match="step"):
        gf.Client("a", fleet.method, like=DIM).load_state_dict(saved)


def test_an_open_upload_of_a_state_that_does_not_tell_its_round_counts_where_nobody_needs_it() -> None:
    """States of before there were shifts do not tell it."""
    fleet = Fleet(gf.top_k(k=2))
    client, server = fleet.clients["a"], fleet.server
    client.encode(fleet.model, fleet.model - 1, server.offer("a"))  # never arrives
    server.step(fleet.model)
    saved = client.state_dict()
    del saved["facts"]["made"], saved["facts"]["step"]
    client.load_state_dict(saved)
    client._state.address = 0  # from several addresses
    assert server.accept("elsewhere", client.encode(fleet.model, fleet.model - 1, server.offer("elsewhere")))


@pytest.mark.parametrize("name", ["each", "EF21, each"])
def test_a_server_that_went_back_to_an_older_state_is_met_by_clean_clients(name: str) -> None:
    """What the client's shift followed is forgotten there: the two would differ for ever."""
    fleet = Fleet(METHODS[name])
    for number in range(10):
        fleet.round(number)
    saved, model = fleet.server.state_dict(), fleet.model.copy()
    for number in range(10, 13):
        fleet.round(number)
    fleet.server.load_state_dict(saved)
    fleet.model[:] = model
    for _ in range(3):  # rounds that its clients have answered already
        fleet.server.step(fleet.model)
    for number in range(13, 20):
        fleet.round(number)
    mirror = fleet.server._exchange.mirror
    assert isinstance(mirror, MirrorOfEach)
    for client in fleet.clients.values():
        client.begin(fleet.model, fleet.server.offer(client.name))
        state = client._state
        shift = mirror.shift_of(state.incarnation)
        assert shift.any()
        assert shift.tobytes() == state.outbox.memory.state()["shift"].tobytes()


@pytest.mark.parametrize("method", [METHODS["each"], gf.ef21(k=2, server="each")], ids=["shifts", "EF21"])
def test_a_client_that_starts_clean_in_every_round_costs_what_it_sent(method: gf.Method) -> None:
    """In memory, and in what a restart reads: not d floats for each of its incarnations."""
    dim, rounds, sent = 100_000, 20, 0
    server, model = gf.Server(method, SCHEDULE, like=dim), np.zeros(dim, np.float32)
    honest = gf.Client("honest", method, like=dim)
    for number in range(rounds):
        for client in (honest, gf.Client("hostile", method, like=dim)):
            offer = server.offer(client.name)
            start = client.begin(model, offer)
            after = start.copy()
            after[7 * number : 7 * number + 2] -= 5
            upload = client.encode(start, after, offer)
            server.accept(client.name, upload)
            sent += len(upload)
        server.step(model)
    mirror = server._exchange.mirror
    assert isinstance(mirror, MirrorOfEach)
    assert len(mirror.shares) == rounds + 1
    held = sum(shift.indices.nbytes + shift.values.nbytes for shift in mirror._shifts.values())
    stored = sum(vector.nbytes for vector in server.state_dict()["mirror"]["vectors"].values())
    assert held <= 64 * sent < rounds * dim
    assert stored <= 2 * sent
    honest.begin(model, server.offer("honest"))
    shift = honest._state.outbox.memory.state()["shift"]
    assert shift.any()
    assert mirror.shift_of(honest._state.incarnation).tobytes() == shift.tobytes()

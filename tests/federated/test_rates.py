"""A rate against odd clocks, losses, restarts, servers that change it or ask twice, and memories of two halves."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gammafl as gf
from gammafl.config.budget import Budget
from gammafl.core.shifts import SHIFT, MirrorOfEach
from gammafl.federated import exchange
from gammafl.federated.budget import Pace
from gammafl.federated.exchange import ClientFacts
from gammafl.files.reading import checked
from tests.federated.test_mirrors import METHODS, SCHEDULE, WITH_STATISTICS, Fleet

OWN = 7.0
"""Bytes a second that client b allows itself."""

PLAIN = {"top-k": gf.top_k(keep=1.0), "stc": gf.stc(keep=0.5), "γ-FedHT-Q": gf.gamma_fedht_q(keep=0.5)}


class OddFleet(Fleet):
    """A `Fleet` whose clock, rates, losses and restarts are drawn; it keeps an account of what each link carried."""

    def __init__(self, method: gf.Method, like: Any, seed: int, clock: list[float]) -> None:
        super().__init__(method, like)
        self.clients["b"] = self._client("b")
        self.chance, self.clock = random.Random(seed), clock
        self.since = dict.fromkeys("abc", clock[0])
        self.carried = dict.fromkeys("abc", 0)
        self.room = dict.fromkeys("abc", 0.0)

    def _client(self, name: str) -> gf.Client:
        return gf.Client(name, self.method, like=self.like, budget=f"{OWN} B/s" if name == "b" else None)

    def odd_round(self, number: int) -> None:
        step = np.float32(SCHEDULE.stepsize(number))
        for name in "abc":
            self.clock[0] += self.chance.choice([0.0, 3.0, 40.0, 40.0, -90.0, -1e9, 1e5])
            self._change(name)
            rate = self.chance.choice([1e-300, 0.5, 9.0, 300.0])
            offer = self.server.offer(name).model_copy(update={"rate": rate})
            client = self.clients[name]
            start = client.begin(self.model, offer)
            trained = start - step * (start - self.centres[name])
            upload = self._send(name, rate, lambda c=client, s=start, t=trained, o=offer: c.encode(s, t, o))
            if self.chance.random() < 0.2:  # a server that went back asks for the same round again
                self.clock[0] += self.chance.choice([0.0, 1.0])
                again = self._send(name, rate, lambda c=client, s=start, t=trained, o=offer: c.encode(s, t, o))
                assert len(again) >= len(upload)
            if self.chance.random() < 0.7:
                self.server.accept(name, upload, weight=1 + ord(name) - ord("a"))
        self.server.step(self.model)

    def _change(self, name: str) -> None:
        event = self.chance.random()
        if event < 0.15:
            saved, self.clients[name] = self.clients[name].state_dict(), self._client(name)
            self.clients[name].load_state_dict(saved)
        elif event < 0.2:
            self.restart_server()

    def _send(self, name: str, rate: float, encode: Any) -> bytes:
        now, rate = self.clock[0], min(rate, OWN) if name == "b" else rate
        upload: bytes = encode()
        self.carried[name] += len(self.clients[name].state_dict()["tensors"]["open"])
        self.room[name] += rate * max(0.0, now - self.since[name])
        self.since[name] = now
        return upload

    def owed(self, name: str) -> float:
        return float(self.clients[name].state_dict()["facts"]["owed_bytes"])


@pytest.mark.parametrize("like", [80, WITH_STATISTICS], ids=["a vector", "with statistics"])
@pytest.mark.parametrize("name", [*METHODS, *PLAIN])
def test_whatever_happens_a_link_carries_its_rate_and_what_it_still_owes(
    name: str, like: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time counts where the clock goes forward."""
    clock = [1e9]
    monkeypatch.setattr(exchange, "wall_clock", lambda: clock[0])
    for seed in range(4):
        fleet = OddFleet({**METHODS, **PLAIN}[name], like, seed, clock)
        for number in range(25):
            fleet.odd_round(number)
        for client in "abc":
            assert fleet.carried[client] - fleet.owed(client) <= fleet.room[client] * (1 + 1e-9) + 1e-6


@pytest.mark.parametrize("name", [*METHODS, *PLAIN])
def test_after_hard_times_it_learns_what_it_would_have_learnt(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What had no room is in the memories, and those with a server half still agree with it."""
    clock = [1e9]
    monkeypatch.setattr(exchange, "wall_clock", lambda: clock[0])
    fleet = OddFleet({**METHODS, **PLAIN}[name], 80, 5, clock)
    for number in range(25):
        fleet.odd_round(number)
    for number in range(25, 200):
        clock[0] += 1e6
        fleet.round(number)
    goal = sum((1 + i) * fleet.centres[client] for i, client in enumerate("abc")) / 6
    assert np.linalg.norm(fleet.model - goal) < 0.35 * np.linalg.norm(goal)
    mirror = fleet.server._exchange.mirror
    if isinstance(mirror, MirrorOfEach):
        for client in fleet.clients.values():
            client.begin(fleet.model, fleet.server.offer(client.name))
            state = client.state_dict()
            assert mirror.shift_of(state["facts"]["incarnation"]).tobytes() == state["tensors"][SHIFT].tobytes()


@given(
    st.lists(st.tuples(st.floats(-1e9, 1e9), st.integers(0, 10**6)), min_size=1, max_size=40),
    st.floats(1e-3, 1e9),
)
def test_a_clock_that_goes_back_and_forth_gives_room_for_its_steps_forward_only(
    steps: list[tuple[float, int]], rate: float
) -> None:
    now, pace, sent, forward = 0.0, Pace(0.0), 0, 0.0
    for step, wish in steps:
        now, forward = now + step, forward + max(0.0, step)
        size = max(16, min(wish, pace.room(rate, now)))
        pace, sent = pace.after(rate, now, size), sent + size
    assert sent - pace.owed <= rate * forward * (1 + 1e-9) + 1e-3


FACTS: dict[str, Any] = {
    "incarnation": "a", "number": 0, "round": 0, "address": 0, "training": "t", "method": "m"
}  # fmt: skip
ODD = [float("nan"), float("inf"), -float("inf"), -1e308, -1.0, 0, 1e12, 1e308, 10**30, 10**400, "0", True, None]


@given(st.sampled_from(ODD) | st.floats(), st.sampled_from(ODD) | st.floats(), st.floats(0, 2**62, exclude_min=True))
def test_a_stored_time_and_debt_are_numbers_to_reckon_with_or_refused(at: Any, owed: Any, rate: float) -> None:
    try:
        facts = checked(ClientFacts, FACTS | {"sent_at": at, "owed_bytes": owed})
    except ValueError:
        return
    pace = Pace(facts.sent_at, facts.owed_bytes)
    assert pace.room(rate, 1.8e9) >= 0
    after = pace.after(rate, 1.8e9, 100)
    assert after.at == 1.8e9
    assert 0 <= after.owed < np.inf


def test_a_client_that_starts_clean_or_in_another_training_still_owes_what_it_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or a server could have it send the smallest messages as often as it likes, at no cost."""
    clock, method, model = [1e9], gf.stc(), np.zeros(80, np.float32)
    monkeypatch.setattr(exchange, "wall_clock", lambda: clock[0])
    client = gf.Client("a", method, like=WITH_STATISTICS, budget="1 B/s")
    owed = [0.0]
    for number in range(5):
        server = gf.Server(method, SCHEDULE, like=WITH_STATISTICS)
        offer = server.offer("a")
        if number % 2:  # it claims to have counted an upload that this client never sent
            client.encode(model, model + 1, offer)
            owed.append(client.state_dict()["facts"]["owed_bytes"])
            known = client.state_dict()["facts"]["incarnation"]
            offer = offer.model_copy(update={"round": 9, "incarnation": known, "accepted": 99})
        client.encode(model, model + 1, offer)
        owed.append(client.state_dict()["facts"]["owed_bytes"])
    assert owed == sorted(set(owed))


@pytest.mark.parametrize(
    "text",
    ["9" * 5000 + " B/s", "9" * 400 + "e99 GB/s", "0." + "0" * 400 + "1 B/s", "0." + "0" * 390 + "1 B/s", "2 kB/s,",
     "inf B/s", "0x10 B/s", "1_0 B/s", "٣ B/s", "2 kB/s, 1 kB/s", "2 kB/s, 0 s/round", "9" * 390 + " s/round",
     "2 kB/s\0", "1 B/s" * 1000, "4611686018427387905 B/s e"],
    ids=lambda text: text[:20].encode("ascii", "replace").decode(),
)  # fmt: skip
def test_a_rate_that_is_none_is_an_error_of_one_short_line(text: str) -> None:
    with pytest.raises(gf.InputError) as error:
        Budget.of(text)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400

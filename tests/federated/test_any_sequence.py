"""What clients computed is in the model or remembered, each update once, whatever happens in whatever order.

Hypothesis makes the sequences of events. After each event, for each state of a client:

    Σ of its updates that counted + its residual + its open upload, if that did not count = Σ of what it computed

With shifts, an update is m + s·h. The test keeps accounts of its own: from the server it takes only which uploads
counted, and from a client only what it stores.
"""

import copy
import itertools
import secrets
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

import gammafl as gf
from gammafl.core.shifts import Shifts
from gammafl.federated.endpoints import _opened

DIM = 24
SCHEDULE = gf.Schedule(gf.InverseDecay(10, 20), iterations=200)
METHODS = {
    "threshold, level of the upload": gf.gamma_fedht(keep=0.2, level="upload"),
    "threshold, level of the run": gf.gamma_fedht(keep=0.2, level="run"),
    "ternary": gf.gamma_fedht_q(keep=0.2),
    "top-k": gf.top_k(k=3),
    "rand-k": gf.rand_k(keep=0.2),
    "shifts, each": gf.gamma_fedht_s(initial_threshold=0.5, rate=0.2, server="each"),
    "shifts, sum": gf.gamma_fedht_s(initial_threshold=0.5, rate=0.2),
}
RUN = {"budget": "6 kB/run", "uploads": 3}  # not for shifts
LIMITS = gf.Limits(payload_bytes=30), gf.Limits(entries=2), gf.Limits(norm=1.5), gf.Limits(learnt_norm=4.0)
WEIGHTS = {"a": 1.0, "b": 2.0, "c": 4.0}
names, seeds, latest_first = st.sampled_from(sorted(WEIGHTS)), st.integers(0, 999), st.integers(0, 5)
all_bounds = st.sampled_from([{}, *({"limits": limits} for limits in LIMITS), RUN])


class Account(NamedTuple):
    """What a state of a client computed and sent, by number: the message, and s of the round in which it was made."""

    incarnation: str = ""
    round: int = 0
    computed: Any = np.zeros(DIM)
    sent: Mapping[int, tuple[bytes, float]] = MappingProxyType({})


class Upload(NamedTuple):
    client: str
    data: bytes
    step: float
    account: Account


class Held:
    """What the server holds of one incarnation: its uploads, their sum with shifts, and its shift and weight."""

    def __init__(self) -> None:
        self.counted: dict[int, tuple[bytes, float]] = {}
        self.sum, self.shift, self.weight = np.zeros(DIM), np.zeros(DIM), 0.0


class AnySequence(RuleBasedStateMachine):
    def __init__(self, method: gf.Method) -> None:
        super().__init__()
        words, self.patch = itertools.count(), pytest.MonkeyPatch()
        self.patch.setattr(secrets, "token_hex", lambda size: f"{next(words):016x}")  # so that a failure repeats
        self.method, self.shifts = method, method.memory if isinstance(method.memory, Shifts) else None
        self.clients = {name: gf.Client(name, method, like=DIM) for name in WEIGHTS}
        self.accounts = dict.fromkeys(WEIGHTS, Account())
        self.disks = {name: (client.state_dict(), Account()) for name, client in self.clients.items()}
        self.offers: dict[str, gf.Offer] = {}
        self.uploads = list[Upload]()
        self.held: dict[str, Held] = defaultdict(Held)

    def teardown(self) -> None:
        self.patch.undo()

    @initialize(bounds=all_bounds)
    def a_training_begins(self, bounds: dict[str, Any]) -> None:
        """Clients that have not heard of it still have the state of the one before."""
        self.model = np.zeros(DIM, np.float32)
        for held in self.held.values():
            held.weight = 0.0
        self.start_server(bounds, None)
        self.stored = copy.deepcopy(self.server.state_dict())

    def start_server(self, bounds: dict[str, Any], saved: Any) -> None:
        allowed = {} if self.shifts and bounds == RUN else bounds
        server = gf.Server(self.method, SCHEDULE, like=DIM, local_steps=2, **allowed)
        if saved is not None:
            server.load_state_dict(copy.deepcopy(saved))
        self.server, self.bounds, self.arrived = server, bounds, dict[str, Upload]()

    @rule(bounds=all_bounds, chance=st.integers(0, 9))
    def another_training_begins(self, bounds: dict[str, Any], chance: int) -> None:
        if chance == 9:
            self.a_training_begins(bounds)

    @rule(name=names)
    def a_client_gets_an_offer(self, name: str) -> None:
        self.offers[name] = gf.Offer.model_validate_json(self.server.offer(name).model_dump_json())

    @rule(name=names, seed=seeds, size=st.sampled_from([1, 1, 0, 100]), begins=st.booleans(), saves=st.booleans())
    def a_client_trains(self, name: str, seed: int, size: int, begins: bool, saves: bool) -> None:
        """With the last offer that it got: in its round, again, or too late. One that saves starts again from there."""
        if name not in self.offers:
            self.a_client_gets_an_offer(name)
        client, offer, account = self.clients[name], self.offers[name], self.accounts[name]
        delta = size * np.random.default_rng(seed).integers(-64, 65, DIM).astype(np.float32) / np.float32(64)
        try:
            start = client.begin(self.model, offer) if begins else self.model
            data = client.encode(start, start - delta, offer)
        except gf.InputError:
            assert offer.round <= account.round
            return
        answer, message = _opened(data)
        if answer.incarnation != account.incarnation:
            account = Account(answer.incarnation)
        if offer.round != account.round:  # otherwise it is the same upload again
            sent = account.sent if answer.again else {**account.sent, answer.number: (message, offer.step)}
            account = Account(answer.incarnation, offer.round, account.computed + (start - (start - delta)), sent)
        self.accounts[name] = account
        self.uploads.append(Upload(name, data, offer.step, account))
        if saves:
            self.disks[name] = copy.deepcopy(client.state_dict()), account
            self.a_client_restarts(name)

    @rule(name=names)
    def a_client_restarts(self, name: str) -> None:
        """From what it stored last, which may be long ago."""
        state, self.accounts[name] = self.disks[name]
        self.clients[name] = gf.Client(name, self.method, like=DIM)
        self.clients[name].load_state_dict(copy.deepcopy(state))

    @rule(name=names, seed=seeds, returns=st.booleans())
    def a_client_works_without_its_disk(self, name: str, seed: int, returns: bool) -> None:
        self.clients[name], self.accounts[name] = gf.Client(name, self.method, like=DIM), Account()
        self.a_client_takes_part(name, seed, saves=False)
        if returns:
            self.a_client_restarts(name)

    @rule(back=latest_first, times=st.integers(1, 2))
    def an_upload_arrives(self, back: int, times: int) -> None:
        """One of the last, for the first time or again. Those that never arrive are lost."""
        for upload in self.uploads[::-1][back : back + 1] * times:
            try:
                if self.server.accept(upload.client, upload.data, weight=WEIGHTS[upload.client]):
                    self.arrived[upload.client] = upload
            except gf.WireError:
                pass

    @rule(back=latest_first, place=st.integers(0, 999), bit=st.integers(0, 7))
    def a_damaged_upload_is_refused(self, back: int, place: int, bit: int) -> None:
        for upload in self.uploads[::-1][back : back + 1]:
            data = bytearray(upload.data)
            data[place % len(data)] ^= 1 << bit
            with pytest.raises(gf.WireError):
                self.server.accept(upload.client, bytes(data))

    @rule(crashes=st.booleans())
    def a_round_ends(self, crashes: bool) -> None:
        """A server that crashes then has stored neither model nor state of this round."""
        before = copy.deepcopy((self.model, self.held))
        step = self.server.step(self.model)
        counted = {address: self.arrived[address] for address in step.clients}
        change = self.count(counted, len(counted) / max(1, len(counted) + step.missing))
        np.testing.assert_allclose(self.model, before[0] - change, rtol=1e-4, atol=1e-3)
        if crashes:
            self.model, self.held = before
            self.start_server(self.bounds, self.stored)
        self.stored, self.arrived = copy.deepcopy(self.server.state_dict()), {}

    def count(self, uploads: dict[str, Upload], share: float) -> Any:
        """The step of the model: this share of the weighted mean of `uploads`, by address, with their shifts."""
        by_sum, change = self.shifts is not None and self.shifts.server_half == "sum", np.zeros(DIM)
        weights = {who: held.weight for who, held in self.held.items() if held.weight}
        if by_sum and uploads and weights:
            mean = np.average([self.held[who].shift for who in weights], axis=0, weights=list(weights.values()))
            change += share * next(iter(uploads.values())).step * mean
        total = sum(WEIGHTS[address] for address in uploads)
        for address, upload in uploads.items():
            answer, message = _opened(upload.data)
            held, known = self.held[answer.incarnation], upload.account.sent
            assert answer.number not in held.counted, "an upload counts twice"
            assert held.counted.items() <= known.items(), "the upload of an overtaken state counts"
            held.counted[answer.number] = known[answer.number]
            sent, made = gf.decode(message).dense().astype(np.float64), known[answer.number][1]
            update = sent + made * held.shift
            change += share * WEIGHTS[address] / total * (sent if by_sum else update)
            held.sum += update
            held.weight = held.weight or WEIGHTS[address]
            if self.shifts and made:
                held.shift += self.shifts.rate * sent
        return change

    @rule(seed=seeds, lost=st.sampled_from(["", "", "a", "b", "ac"]), saves=st.booleans(), restarts=st.booleans())
    def a_whole_round_passes(self, seed: int, lost: str, saves: bool, restarts: bool) -> None:
        for i, name in enumerate(WEIGHTS):
            self.a_client_takes_part(name, seed + i, saves, name in lost)
            if restarts and i == 0:
                self.the_server_restarts(within_round=True, bounds=None)
        self.a_round_ends(crashes=False)

    def a_client_takes_part(self, name: str, seed: int, saves: bool, lost: bool = False) -> None:
        self.a_client_gets_an_offer(name)
        self.a_client_trains(name, seed, size=1, begins=True, saves=saves)
        if not lost:
            self.an_upload_arrives(back=0, times=1)

    @rule(within_round=st.booleans(), bounds=st.none() | all_bounds)
    def the_server_restarts(self, within_round: bool, bounds: dict[str, Any] | None) -> None:
        """From its state of now or of the last round; with other bounds, where it takes them."""
        saved = self.server.state_dict() if within_round else self.stored
        try:
            self.start_server(self.bounds if bounds is None else bounds, saved)
        except gf.InputError:
            self.start_server(self.bounds, saved)

    @invariant()
    def what_was_computed_is_in_the_model_or_remembered(self) -> None:
        for name, client in self.clients.items():
            stored, account = client.state_dict(), self.accounts[name]
            tensors, facts = stored["tensors"], stored["facts"]
            held = self.held[account.incarnation]
            if facts["incarnation"] != account.incarnation or not held.counted.items() <= account.sent.items():
                continue  # it has computed nothing yet, or uploads that it does not know counted: it will start clean
            remembered = client.residual.astype(np.float64)
            if "open" in tensors and facts["number"] not in held.counted:
                remembered += gf.decode(tensors["open"].tobytes()).dense() + facts["step"] * tensors.get("shift", 0)
            most = 1 + max(np.abs(held.sum).max(), np.abs(remembered).max())
            np.testing.assert_allclose(held.sum + remembered, account.computed, rtol=0, atol=1e-4 * most, err_msg=name)


@pytest.mark.parametrize("name", METHODS)
def test_nothing_is_lost_and_nothing_counts_twice_in_any_sequence(name: str) -> None:
    machine: Any = seed(name)(partial(AnySequence, METHODS[name]))
    fixed = settings(max_examples=40, stateful_step_count=25, database=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(machine, settings=fixed)

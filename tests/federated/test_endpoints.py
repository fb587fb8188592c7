"""A client and a server without any framework: the simulator's numbers, and nothing is lost on the way."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import gammafl as gf
from gammafl import seeds
from gammafl.core.arrays import Vector
from gammafl.federated import server as federated_server
from gammafl.federated.endpoints import MAGIC, _opened
from tests import problems
from tests.conftest import vectors
from tests.problems import METHODS, STEPSIZE, Quadratic, plan_for

DIM = 20
SCHEDULE = gf.Schedule(STEPSIZE, iterations=200)
every_method = pytest.mark.parametrize("name", METHODS)


@every_method
@pytest.mark.parametrize("participants", [2, 4])
def test_rounds_by_hand_are_the_simulators_bit_for_bit(name: str, participants: int) -> None:
    task, method = Quadratic(), METHODS[name]
    plan = plan_for(method, weights="normalized", participants=participants)
    expected, _, records = problems.run(plan)
    server = gf.Server(method, SCHEDULE, like=50, local_steps=5)
    clients = [gf.Client(str(i), method, like=50) for i in range(4)]
    model = task.initial_model(seeds.generator(0, "model"))
    for number in range(plan.rounds):
        steps = federated_server.round_stepsizes(plan, number)
        for i in federated_server.pick(4, participants, 0, number):
            local = next(task.train([i], model, steps, [seeds.generator(0, "batches", number, i)]))
            upload = clients[i].encode(model, model - local.delta, server.offer(str(i)))
            server.accept(str(i), upload, weight=task.client_sizes[i])
        record = server.step(model)
        assert (record.uplink_bytes, record.kept) == (records[number].uplink_bytes, records[number].kept)
    np.testing.assert_allclose(model, expected.model, rtol=0, atol=1e-5)  # model − (model − Δ) is Δ but for rounding


FATES = (
    "arrives",
    "is lost",
    "arrives twice",
    "arrives, then the client restarts",
    "is lost, then the client restarts",
    "arrives, then the server restarts",
    "is not asked",
)


def dyadic(seed: int) -> Vector:
    """Multiples of 1/64, so that sums in float32 are exact."""
    return (np.random.default_rng(seed).integers(-64, 65, DIM) / 64).astype(np.float32)


@every_method
@given(fates=st.lists(st.sampled_from(FATES), max_size=12))
def test_what_was_computed_is_in_the_model_or_remembered(name: str, fates: list[str]) -> None:
    """Two clients; the second always arrives, so that rounds go on."""
    method = METHODS[name]
    server = gf.Server(method, SCHEDULE, like=DIM)
    clients = {who: gf.Client(who, method, like=DIM) for who in "ab"}
    counted = {who: np.zeros(DIM) for who in "ab"}
    computed = {who: np.zeros(DIM) for who in "ab"}
    model = np.zeros(DIM, np.float32)
    for number, fate in enumerate(fates):
        for who in "ab":
            if who == "a" and fate == "is not asked":
                continue
            offer = gf.Offer.model_validate_json(server.offer(who).model_dump_json())
            delta = dyadic(2 * number + (who == "b"))
            computed[who] += delta
            start = clients[who].begin(np.zeros(DIM, np.float32), offer)
            upload = clients[who].encode(start, start - delta, offer)
            saved = clients[who].state_dict()
            if who == "b" or "arrives" in fate:
                server.accept(who, upload)
                counted[who] += gf.decode(_opened(upload)[1]).dense()
            if who == "a" and fate == "arrives twice":
                with pytest.raises(gf.WireError, match="second upload"):
                    server.accept(who, upload)
            if who == "a" and "client restarts" in fate:
                clients[who] = gf.Client(who, method, like=DIM)
                clients[who].load_state_dict(copy.deepcopy(saved))
        server.step(model)
        if "server restarts" in fate:
            table = server.state_dict()
            server = gf.Server(method, SCHEDULE, like=DIM)
            server.load_state_dict(copy.deepcopy(table))
    for who, client in clients.items():
        if fates:
            client.begin(model, server.offer(who))
        rest = client.residual.astype(np.float64)
        tolerance = 0 if method.values.exact else 1e-5
        np.testing.assert_allclose(counted[who] + rest, computed[who], rtol=0, atol=tolerance)


def test_a_client_that_lost_an_upload_trains_on_from_it() -> None:
    """With `begin`, a single client ends where it would have ended had every upload arrived."""

    def trained(lost: set[int]) -> Vector:
        server, client = gf.Server("fedavg", SCHEDULE, like=DIM), gf.Client("a", "fedavg", like=DIM)
        model, centre = np.zeros(DIM, np.float32), dyadic(5)
        for number in range(8):
            offer = server.offer("a")
            start = client.begin(model, offer)
            upload = client.encode(start, start - np.float32(0.25) * (start - centre), offer)
            if number not in lost:
                server.accept("a", upload)
            server.step(model)
        return model

    np.testing.assert_allclose(trained({1, 2, 5}), trained(set()), atol=1e-5)


def test_a_training_that_is_begun_again_starts_from_the_same_model() -> None:
    """As after an error in the first attempt, in the same round or in the next one."""
    method, zero = gf.top_k(k=2), np.zeros(5, np.float32)
    server, client = gf.Server(method, SCHEDULE, like=5), gf.Client("a", method, like=5)
    client.encode(zero, zero - [5, 1, 2, 3, 4], server.offer("a"))  # and it is lost
    server.step(zero.copy())
    starts = [client.begin(zero, server.offer("a")).tolist() for _ in range(2)]
    server.step(zero.copy())
    starts.append(client.begin(zero, server.offer("a")).tolist())
    assert starts == [[-5, 0, 0, 0, -4]] * 3
    assert server.accept("a", client.encode(zero, zero, server.offer("a")))
    server.step(zero.copy())
    assert client.begin(zero, server.offer("a")).tolist() == [0] * 5


class Net(nn.Module):
    def __init__(self, precision: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(precision)


@pytest.mark.parametrize("precision", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("as_dict", [False, True])
def test_modules_and_state_dicts_of_any_precision_go_in_and_come_out_as_they_are(
    precision: torch.dtype, as_dict: bool
) -> None:
    """Everything is sent: after the step the server's model is the client's."""
    before, after = Net(precision), Net(precision)
    server, client = gf.Server("fedavg", SCHEDULE, like=before), gf.Client("a", "fedavg", like=before)
    given: list[Any] = [before.state_dict(), after.state_dict()] if as_dict else [before, after]
    server.accept("a", client.encode(given[0], given[1], server.offer("a")))
    server.step(before)
    tolerance = {torch.float16: 2e-3, torch.bfloat16: 2e-2}.get(precision, 1e-6)
    for name, tensor in before.state_dict().items():
        assert tensor.dtype == after.state_dict()[name].dtype
        torch.testing.assert_close(tensor, after.state_dict()[name], atol=tolerance, rtol=tolerance)


def test_running_statistics_are_sent_whole() -> None:
    before, after = Net(), Net()
    server, client = gf.Server("top-k:k=2", SCHEDULE, like=before), gf.Client("a", "top-k:k=2", like=before)
    server.accept("a", client.encode(before, after, server.offer("a")))
    assert server.step(before).kept == 2 + 8


def test_both_sides_must_mean_the_same() -> None:
    server = gf.Server("top-k:k=2", SCHEDULE, like={"w": np.zeros((2, 3), np.float32)})
    model = {"w": np.zeros((3, 2), np.float32)}
    with pytest.raises(gf.InputError, match="other tensors"):
        gf.Client("a", "top-k:k=2", like=model).encode(model, model, server.offer("a"))
    model = {"w": np.zeros((2, 3), np.float32)}
    with pytest.raises(gf.InputError, match="method"):
        gf.Client("a", "top-k:k=3", like=model).encode(model, model, server.offer("a"))
    with pytest.raises(gf.InputError, match="tensor 'w' must be of shape"):
        gf.Client("a", "top-k:k=2", like=model).encode(model, {"v": model["w"]}, server.offer("a"))


def test_an_offer_that_comes_again_gets_the_same_upload_and_counts_once() -> None:
    server, client = gf.Server("fedavg", SCHEDULE, like=DIM), gf.Client("a", "fedavg", like=DIM)
    model, (delta,) = np.zeros(DIM, np.float32), vectors(1, DIM)
    offer = server.offer("a")
    upload = client.encode(model, model - delta, offer)
    repeated = client.encode(model, model - 2 * delta, offer)
    assert server.accept("a", repeated)
    with pytest.raises(gf.WireError, match="second upload in one round"):
        server.accept("a", upload)
    server.step(model)
    np.testing.assert_array_equal(model, -delta)
    assert client.begin(model, server.offer("a")) is not None
    with pytest.raises(gf.InputError, match="has uploaded in round"):
        client.encode(model, model - delta, offer.model_copy(update={"round": 0}))


def test_an_old_upload_does_not_count() -> None:
    server, client = gf.Server("fedavg", SCHEDULE, like=DIM), gf.Client("a", "fedavg", like=DIM)
    model, (delta,) = np.zeros(DIM, np.float32), vectors(1, DIM)
    upload = client.encode(model, model - delta, server.offer("a"))
    server.step(model)
    with pytest.raises(gf.WireError, match="round 1 came in round 2"):
        server.accept("a", upload)
    assert not model.any()


@pytest.mark.parametrize("method", ["fedavg", "top-k:k=5", "gamma-fedht-q:keep=0.1", "dgc:keep=0.1", "ef21:keep=0.1"])
def test_a_server_that_dies_in_any_round_gives_the_same_model(method: str) -> None:
    """It goes back to what it stored after the round before; its clients do not."""

    def train(dies: bool) -> Vector:
        server = gf.Server(method, SCHEDULE, like=DIM)
        clients = [gf.Client(name, method, like=DIM) for name in "abc"]
        model = np.zeros(DIM, np.float32)
        for number in range(6):
            stored, before = server.state_dict(), model.copy()
            for asked in range(2 if dies else 1):
                if asked:
                    server, model = gf.Server(method, SCHEDULE, like=DIM), before
                    server.load_state_dict(stored)
                for i, client in enumerate(clients[: 2 if dies and not asked else 3]):
                    offer = server.offer(client.name)
                    start = client.begin(model, offer)
                    rng = np.random.default_rng([number, i])
                    trained = start - rng.normal(size=DIM).astype(np.float32) - np.float32(0.1) * start
                    server.accept(client.name, client.encode(start, trained, offer), weight=i + 1)
                server.step(model)
        return model

    np.testing.assert_array_equal(train(dies=True), train(dies=False))


@given(data=st.binary(max_size=200), prefix=st.booleans())
def test_any_bytes_are_refused_in_one_line_and_change_nothing(data: bytes, prefix: bool) -> None:
    server, model = gf.Server("fedavg", SCHEDULE, like=DIM), np.zeros(DIM, np.float32)
    with pytest.raises(gf.WireError):
        server.accept("a", MAGIC + data if prefix else data)
    assert server.step(model).clients == []
    assert not model.any()


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf"), 1e300, 5e-324, None, "many", [1], 10**400, 1j])
def test_a_weight_that_is_none_is_refused_as_a_peers_word(weight: Any) -> None:
    server, client = gf.Server("fedavg", SCHEDULE, like=DIM), gf.Client("a", "fedavg", like=DIM)
    upload = client.encode(np.zeros(DIM), np.ones(DIM), server.offer("a"))
    with pytest.raises(gf.WireError, match="weight"):
        server.accept("a", upload, weight=weight)


@given(place=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_an_upload_with_one_changed_bit_is_refused(place: int, bit: int) -> None:
    """Who sent it is protected as well as what was sent: under another name it would count twice."""
    server, client = gf.Server("fedavg", SCHEDULE, like=DIM), gf.Client("a", "fedavg", like=DIM)
    upload = bytearray(client.encode(np.zeros(DIM), np.ones(DIM), server.offer("a")))
    upload[place % len(upload)] ^= 1 << bit
    with pytest.raises(gf.WireError):
        server.accept("a", bytes(upload))


@pytest.mark.parametrize("name", ["client 7", "Müller", "", "x" * 129, "a\n", 7])
def test_a_name_that_can_not_travel_is_refused_at_once(name: Any) -> None:
    with pytest.raises(gf.InputError, match="name"):
        gf.Client(name, "fedavg", like=DIM)
    with pytest.raises(gf.InputError, match="name"):
        gf.Server("fedavg", SCHEDULE, like=DIM).offer(name)


def test_tied_tensors_are_one() -> None:
    module = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    module[1].weight = module[0].weight
    other = copy.deepcopy(module)
    nn.init.normal_(next(other.parameters()))
    server, client = gf.Server("fedavg", SCHEDULE, like=module), gf.Client("a", "fedavg", like=module)
    server.accept("a", client.encode(module, other, server.offer("a")))
    assert server.step(module).kept == 16
    torch.testing.assert_close(module.state_dict(), other.state_dict())


def test_parts_without_elements_are_not_tied_wherever_they_lie() -> None:
    """One side may hold its tensors in one vector, where empty parts begin at the same place."""
    vector = np.zeros(6, np.float32)
    model = {"a": vector[:3], "none": vector[3:3], "nor this": vector[3:3], "b": vector[3:]}
    server = gf.Server("fedavg", SCHEDULE, like=model)
    client = gf.Client("a", "fedavg", like={name: part.copy() for name, part in model.items()})
    other = {name: part + 1 for name, part in model.items()}
    server.accept("a", client.encode(model, other, server.offer("a")))
    server.step(model)
    np.testing.assert_array_equal(vector, 1)


def read_only() -> Vector:
    array = np.zeros(2, np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "model",
    [{"a": np.zeros(2, np.float32), "b": np.float32(1)}, {"a": np.zeros(2, np.float32), "b": read_only()}, read_only()],
    ids=["a number", "a read-only array", "a read-only vector"],
)
def test_a_model_that_can_not_be_changed_as_a_whole_is_not_changed_at_all(model: Any) -> None:
    server, client = gf.Server("fedavg", SCHEDULE, like=model), gf.Client("a", "fedavg", like=model)
    ones = {name: np.ones_like(part) for name, part in model.items()} if isinstance(model, dict) else np.ones(2)
    server.accept("a", client.encode(model, ones, server.offer("a")))
    with pytest.raises(gf.InputError, match="in place"):
        server.step(model)
    assert server.round == 0
    assert not np.any(model["a"] if isinstance(model, dict) else model)


@pytest.mark.parametrize("part", [1.0, [1.0, 2.0], np.zeros(2, complex), "x"])
def test_a_part_of_a_model_that_could_not_be_trained_is_refused(part: Any) -> None:
    with pytest.raises(gf.InputError, match="arrays or tensors of floats"):
        gf.Server("fedavg", SCHEDULE, like={"a": part, "b": np.zeros(2, np.float32)})


@pytest.mark.parametrize(
    "spoil", [{"round": "x"}, {"round": -1}, {"receipts": {}}, {"receipts": {"at": 3}}, {"asked": 3}]
)
def test_a_servers_state_of_nonsense_is_refused_and_the_server_stays_as_it_was(spoil: dict[str, Any]) -> None:
    server = gf.Server("fedavg", SCHEDULE, like=DIM)
    with pytest.raises(gf.InputError, match="not a state of a server"):
        server.load_state_dict(server.state_dict() | spoil)
    assert server.round == 0


def test_a_server_that_restarts_within_a_round_still_divides_by_all_whom_it_asked() -> None:
    server, clients = gf.Server("fedavg", SCHEDULE, like=1), [gf.Client(name, "fedavg", like=1) for name in "abcd"]
    model = np.zeros(1, np.float32)
    uploads = {c.name: c.encode(model, model - 8, server.offer(c.name)) for c in clients}
    again = gf.Server("fedavg", SCHEDULE, like=1)
    again.load_state_dict(copy.deepcopy(server.state_dict()))
    again.accept("a", uploads["a"])
    assert (again.step(model).missing, model.tolist()) == (3, [-2.0])


def test_an_upload_of_an_earlier_training_does_not_count_in_the_same_round_of_the_next() -> None:
    client, (before, now) = gf.Client("a", "fedavg", like=1), [gf.Server("fedavg", SCHEDULE, like=1) for _ in range(2)]
    model = np.zeros(1, np.float32)
    late = client.encode(model, model - 8, before.offer("a"))
    now.offer("a")
    with pytest.raises(gf.WireError, match="another training"):
        now.accept("a", late)
    assert (now.step(model).clients, model.tolist()) == ([], [0.0])


def test_a_client_that_must_start_clean_says_so(caplog: pytest.LogCaptureFixture) -> None:
    server, client = gf.Server("top-k:k=2", SCHEDULE, like=DIM), gf.Client("a", "top-k:k=2", like=DIM)
    model = np.zeros(DIM, np.float32)
    old = copy.deepcopy(client.state_dict())
    for number in range(3):
        server.accept("a", client.encode(model, model - dyadic(number), server.offer("a")))
        server.step(model)
        old = old if number else copy.deepcopy(client.state_dict())
    client.load_state_dict(old)
    client.encode(model, model - dyadic(9), server.offer("a"))
    assert "client a starts clean: its stored state is an old one" in caplog.text


@every_method
def test_a_state_on_disk_is_the_state(name: str, tmp_path: Path) -> None:
    method, file = METHODS[name], tmp_path / "a.state"
    server, client = gf.Server(method, SCHEDULE, like=DIM), gf.Client("a", method, like=DIM)
    model = np.zeros(DIM, np.float32)
    for number in range(3):
        client.encode(model, model - dyadic(number), server.offer("a"))
        client.save(file)
        server.step(model)
    again = gf.Client("a", method, like=DIM)
    again.load(file)
    offer, delta = server.offer("a"), dyadic(9)
    assert again.encode(model, model - delta, offer) == client.encode(model, model - delta, offer)
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(gf.InputError, match="not a usable state of a client"):
        again.load(file)


def test_a_model_that_can_not_be_changed_in_place_is_refused() -> None:
    server: Any = gf.Server("fedavg", SCHEDULE, like=2)
    client = gf.Client("a", "fedavg", like=2)
    server.accept("a", client.encode([0.0, 0.0], [1.0, 2.0], server.offer("a")))
    with pytest.raises(gf.InputError, match="in place"):
        server.step([0.0, 0.0])


class Own(gf.Compressor):
    def take(self, vector: Vector, moment: gf.Moment) -> gf.SparseUpdate:
        values = vector[:3].copy()
        vector[:3] = 0
        return gf.SparseUpdate(vector.size, np.arange(3), values)


def test_a_compressor_of_ones_own_needs_no_name() -> None:
    server, client = gf.Server(Own(), SCHEDULE, like=DIM), gf.Client("a", Own(), like=DIM)
    model = np.zeros(DIM, np.float32)
    server.accept("a", client.encode(model, model - dyadic(1), server.offer("a")))
    assert server.step(model).kept == 3


@pytest.mark.parametrize(
    "spoil",
    [
        lambda saved: saved["facts"].update(number="x"),
        lambda saved: saved["facts"].update(number=-1),
        lambda saved: saved["facts"].pop("round"),
        lambda saved: saved["facts"].update(method="another"),
        lambda saved: saved["tensors"].update(open=np.zeros(5, np.uint8)),
        lambda saved: saved["tensors"].update(residual=np.zeros(3, np.float32)),
        lambda saved: saved["tensors"].update(residual=np.full(DIM, np.nan, np.float32)),
    ],
)
def test_a_state_of_nonsense_is_refused_and_the_client_stays_as_it_was(spoil: Any) -> None:
    server, client = gf.Server("top-k:k=2", SCHEDULE, like=DIM), gf.Client("a", "top-k:k=2", like=DIM)
    client.encode(np.zeros(DIM), dyadic(1), server.offer("a"))
    saved, before = copy.deepcopy(client.state_dict()), client.residual.tobytes()
    spoil(saved)
    with pytest.raises(gf.InputError, match="not a state of this client"):
        client.load_state_dict(saved)
    assert client.residual.tobytes() == before

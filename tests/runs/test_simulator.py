"""gf.simulate: any module, any data sets."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

import gammafl as gf
from gammafl import seeds
from gammafl.federated.task import layout_of
from gammafl.federated.units import show_bytes, show_metric
from gammafl.methods.registry import OURS
from gammafl.tasks.own_samples import as_samples
from gammafl.tasks.torch_task import TorchTask
from tests.problems import blobs

STEPSIZE = gf.InverseDecay(50, 500)


def network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))


@pytest.mark.parametrize("method", OURS)
def test_every_method_learns_with_ones_own_model_and_data(method: str) -> None:
    clients, test = blobs()
    result = gf.simulate(
        network(), clients, test, method=method, stepsize=STEPSIZE, iterations=300, keep=0.1, batch_size=10
    )
    assert result.summary.final > 0.9
    assert result.summary.dim == 8 * 16 + 16 + 16 * 3 + 3
    assert len(result.rounds) == 60
    inputs, labels = test.tensors
    accuracy = (result.model(inputs).argmax(1) == labels).float().mean().item()
    assert accuracy == pytest.approx(result.summary.final)


def test_the_callers_model_and_random_state_are_left_alone() -> None:
    model, (clients, test) = network(), blobs()
    before, random_state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    gf.simulate(model, clients, test, stepsize=STEPSIZE, iterations=20)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_dense_with_one_client_is_torchs_own_sgd() -> None:
    (data,), test = blobs(clients=1)
    model = nn.Linear(8, 3)
    result = gf.simulate(model, [data], test, method="fedavg", stepsize=STEPSIZE, iterations=50, batch_size=7)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    inputs, labels = data.tensors
    for r in range(10):
        rows = seeds.generator(0, "batches", r, 0).integers(len(labels), size=35).reshape(5, 7)
        for i, row in enumerate(rows):
            optimizer.param_groups[0]["lr"] = STEPSIZE(5 * r + i)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs[row]), labels[row]).backward()
            optimizer.step()
    for ours, theirs in zip(result.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_data_set_with_items_does_what_its_tensors_do() -> None:
    class Items(Dataset[tuple[torch.Tensor, int]]):
        def __init__(self, tensors: tuple[torch.Tensor, ...]) -> None:
            self.inputs, self.labels = tensors

        def __len__(self) -> int:
            return len(self.labels)

        def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
            return self.inputs[i], int(self.labels[i])

    clients, test = blobs()
    model = network()
    by_tensors = gf.simulate(model, clients, test, stepsize=STEPSIZE, iterations=50)
    by_items = gf.simulate(
        model, [Items(c.tensors) for c in clients], Items(test.tensors), stepsize=STEPSIZE, iterations=50
    )
    assert by_tensors.rounds == by_items.rounds


def test_a_run_that_diverges_says_so() -> None:
    clients, test = blobs()
    with pytest.raises(gf.DivergedError, match="not finite"):
        gf.simulate(network(), clients, test, method="fedavg", stepsize=gf.Constant(1e30), iterations=50)


def test_a_metric_that_does_not_fit_is_refused_and_the_loss_always_fits() -> None:
    client_data, test_data = blobs()
    clients = [TensorDataset(data.tensors[0], data.tensors[0][:, 0]) for data in client_data]
    test = TensorDataset(test_data.tensors[0], test_data.tensors[0][:, 0])
    model = nn.Sequential(nn.Linear(8, 1), nn.Flatten(0))
    settings: dict[str, Any] = {"stepsize": gf.Constant(0.01), "iterations": 200, "loss": nn.functional.mse_loss}
    with pytest.raises(gf.InputError, match="metric='loss'"):
        gf.simulate(model, clients, test, **settings)
    result = gf.simulate(model, clients, test, metric="loss", **settings)
    first = result.rounds[19].loss
    assert first is not None
    assert result.summary.final == result.summary.final_loss < first


def test_buffers_of_the_module_do_not_leak_between_clients() -> None:
    clients, test = blobs()
    model = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 3))
    task = TorchTask("sn", model, [as_samples(c, "c") for c in clients], as_samples(test, "t"), 10)
    start, steps = task.initial_model(np.random.default_rng(0)), np.full(3, 0.1, np.float32)
    both = [u.delta.copy() for u in task.train([0, 1], start, steps, [np.random.default_rng(i) for i in (0, 1)])]
    alone = next(task.train([1], start, steps, [np.random.default_rng(1)])).delta
    assert both[1].tobytes() == alone.tobytes()


def normalised() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))


def compiled_in_place(model: nn.Module) -> nn.Module:
    model.compile()
    return model


def first_part_compiled(model: nn.Sequential) -> nn.Sequential:
    first: Any = torch.compile(model[0])
    return nn.Sequential(first, *list(model)[1:])


COMPILED: dict[str, Callable[[nn.Sequential], Any]] = {
    "as a whole": torch.compile,
    "a part": first_part_compiled,
    "a part and the whole": lambda model: torch.compile(first_part_compiled(model)),
    "in place": compiled_in_place,
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what torch's compiler imports
@pytest.mark.parametrize("compiled", COMPILED.values(), ids=COMPILED)
def test_a_compiled_module_trains_as_the_module_that_it_wraps(compiled: Callable[[nn.Sequential], Any]) -> None:
    clients, test = blobs()
    settings: dict[str, Any] = {"stepsize": STEPSIZE, "iterations": 50, "buffers": "local"}
    plain = gf.simulate(normalised(), clients, test, **settings)
    result = gf.simulate(compiled(normalised()), clients, test, **settings)
    assert result.rounds == plain.rounds
    assert str(result.model) == str(plain.model)
    assert list(result.model.state_dict()) == list(plain.model.state_dict())


def test_running_statistics_travel_and_are_averaged() -> None:
    """After one round with every client, they are the mean over the clients of what each would have alone."""
    clients, test = blobs()
    settings: dict[str, Any] = {"stepsize": STEPSIZE, "iterations": 5, "weights": "normalized", "buffers": "travel"}
    together = gf.simulate(normalised(), clients, test, method="fedavg", participation=1, **settings)
    task = gf.torch_task(normalised(), clients, test, 50, buffers="travel")
    model = task.initial_model(seeds.generator(0, "model"))
    rngs = [seeds.generator(0, "batches", 0, client) for client in range(4)]
    steps = np.array([STEPSIZE(t) for t in range(5)], np.float32)
    alone = [layout_of(task).split(model - u.delta)["1.running_var"] for u in task.train(range(4), model, steps, rngs)]
    np.testing.assert_allclose(together.model.state_dict()["1.running_var"], np.mean(alone, axis=0), rtol=1e-4)
    assert together.summary.dim == 8 * 16 + 16 + 2 * 16 + 16 * 3 + 3 + 2 * 16


@pytest.mark.parametrize(("buffers", "extra"), [("travel", 32), ("local", 0)])
def test_a_model_with_batch_normalisation_learns_either_way(buffers: Any, extra: int) -> None:
    clients, test = blobs()
    result = gf.simulate(
        normalised(), clients, test, stepsize=STEPSIZE, iterations=300, keep=0.1, batch_size=10,
        weights="normalized", buffers=buffers,
    )  # fmt: skip
    assert result.summary.final > 0.8
    assert result.summary.dim == 8 * 16 + 16 + 2 * 16 + 16 * 3 + 3 + extra
    assert min(record.kept for record in result.rounds) >= 2 * extra  # two participants


def test_statistics_that_travel_need_weights_that_sum_to_one() -> None:
    clients, test = blobs()
    with pytest.raises(gf.InputError, match="normalized"):
        gf.simulate(normalised(), clients, test, stepsize=STEPSIZE, iterations=5, buffers="travel")


@pytest.mark.parametrize(
    "wrong",
    [
        {"participation": 0},
        {"batch_size": 0},
        {"seed": -1},
        {"evaluate_every": 0},
        {"stepsize": "fast"},
        {"method": gf.Dense},
        {"iterations": 20.0},
        {"iterations": 7},
        {"metric": "acuracy"},
        {"buffers": "travell"},
        {"averaging": "tails"},
    ],
    ids=str,
)
def test_a_wrong_argument_is_named(wrong: dict[str, Any]) -> None:
    clients, test = blobs()
    settings: dict[str, Any] = {"stepsize": STEPSIZE, "iterations": 20, **wrong}
    with pytest.raises(gf.InputError, match=next(iter(wrong))):
        gf.simulate(network(), clients, test, **settings)


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (nn.Sequential(nn.Linear(8, 3), nn.BatchNorm1d(3)), "buffers='travel'"),
        (nn.Linear(8, 3).double(), "float32"),
        (nn.Flatten(), "no trainable parameters"),
        (nn.functional.relu, "must be a torch.nn.Module, got function"),
    ],
)
def test_a_model_that_can_not_be_federated_is_refused_with_the_reason(model: Any, problem: str) -> None:
    clients, test = blobs()
    with pytest.raises(gf.InputError, match=problem):
        gf.simulate(model, clients, test, stepsize=STEPSIZE, iterations=5)


def test_a_mistyped_method_and_an_empty_data_set_are_refused_by_name() -> None:
    clients, test = blobs()
    with pytest.raises(gf.InputError, match="did you mean 'gamma-fedht'"):
        gf.simulate(network(), clients, test, method="gama-fedht", stepsize=STEPSIZE, iterations=5)
    empty = TensorDataset(torch.empty(0, 8), torch.empty(0, dtype=torch.long))
    with pytest.raises(gf.InputError, match=r"client_datasets\[1\]"):
        gf.simulate(network(), [clients[0], empty], test, stepsize=STEPSIZE, iterations=5)


def test_frozen_parameters_stay_and_are_not_sent() -> None:
    model, (clients, test) = network(), blobs()
    model[0].requires_grad_(False)
    result = gf.simulate(model, clients, test, method="fedavg", stepsize=STEPSIZE, iterations=20)
    assert result.summary.dim == 16 * 3 + 3
    assert torch.equal(result.model.state_dict()["0.weight"], model.state_dict()["0.weight"])


def test_with_local_statistics_the_order_of_the_test_set_hardly_matters() -> None:
    clients, test = blobs()
    inputs, labels = test.tensors
    order = torch.argsort(labels, stable=True)[:251]
    settings: dict[str, Any] = {"stepsize": STEPSIZE, "iterations": 100, "weights": "normalized", "buffers": "local"}
    in_order = gf.simulate(normalised(), clients, TensorDataset(inputs[order], labels[order]), **settings)
    mixed = order[torch.randperm(len(order), generator=torch.Generator().manual_seed(0))]
    shuffled = gf.simulate(normalised(), clients, TensorDataset(inputs[mixed], labels[mixed]), **settings)
    assert in_order.summary.final == pytest.approx(shuffled.summary.final, abs=0.05)


class Odd(gf.Dense):
    """A method whose name would be markup."""

    def __repr__(self) -> str:
        return "<b>Odd & co.</b>" + 1000 * "again"


def test_a_result_is_printed_in_a_line_and_in_a_notebook_as_a_small_table() -> None:
    clients, test = blobs()
    result = gf.simulate(
        network(), clients, test, stepsize=STEPSIZE, iterations=1000, local_steps=1, evaluate_every=100, batch_size=4
    )
    assert len(result.rounds) == 1000
    assert result.summary.averaged is not None
    for text in (repr(result), result._repr_html_(), str(result.summary)):
        assert len(text) < 500
        assert "gamma-fedht" in text
        assert show_metric("accuracy", result.summary.final) in text
        assert show_metric("accuracy", result.summary.averaged) in text
        assert show_bytes(result.summary.uplink_bytes) in text


@pytest.mark.parametrize("averaging", ["tail", "none"])
def test_a_long_or_odd_name_of_a_method_is_shortened_and_escaped(averaging: Any) -> None:
    clients, test = blobs()
    result = gf.simulate(
        network(), clients, test, method=Odd(), stepsize=STEPSIZE, iterations=5, averaging=averaging, metric="loss"
    )
    assert "<b>Odd & co.</b>" in repr(result)
    assert "&lt;b&gt;Odd &amp; co.&lt;/b&gt;" in result._repr_html_()
    assert "<b>" not in result._repr_html_()
    assert ("averaged" in repr(result)) == (averaging == "tail")
    assert max(len(repr(result)), len(result._repr_html_())) < 500

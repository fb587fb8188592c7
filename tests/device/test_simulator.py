"""The simulator on a device: the same run as by torch on the host, and no update crosses as a whole."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import TensorDataset

import gammafl as gf
from gammafl.core.device import vectors
from gammafl.core.device.torch_vectors import TorchVector
from gammafl.core.errors import InputError
from gammafl.runs.simulate import Result
from gammafl.tasks.device_replica import KINDS, seed_device
from gammafl.tasks.fast.random_state import drawing_from
from gammafl.tasks.flat_module import FlatModule
from tests.problems import OnRound

pytestmark = pytest.mark.device


def data(count: int = 4, seed: int = 0, kind: torch.dtype = torch.float32) -> list[TensorDataset]:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(60 * (count + 1), 20, generator=generator)
    targets = (inputs[:, :3].sum(1) > 0).long() + 2 * (inputs[:, 3] > 0).long()
    return [TensorDataset(*part) for part in zip(inputs.to(kind).split(60), targets.split(60), strict=True)]


def net(dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 40), nn.Tanh(), nn.Dropout(dropout), nn.Linear(40, 4))


def simulated(module: nn.Module, **settings: Any) -> Result:
    *clients, test = data(kind=next(module.parameters()).dtype)
    usual = {"method": "top-k:keep=0.05", "stepsize": 0.1, "iterations": 60, "batch_size": 10}
    return gf.simulate(module, clients, test, **{**usual, **settings})


def weights(result: Result) -> np.ndarray:
    return torch.cat([tensor.detach().float().cpu().flatten() for tensor in result.model.parameters()]).numpy()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"method": "gamma-fedht-q:keep=0.05"},
        {"method": "fedavg"},
        {"optimizer": "adamw:weight_decay=0.01", "stepsize": 0.01},
        {"proximal": 0.1},
        {"faults": {"lost": 0.2, "not_finite": 0.1, "repeated": 0.1}},
        {"downlink": "gamma-fedht-q:keep=0.1"},
        {"budget": "300 B/upload"},
    ],
    ids=str,
)  # fmt: skip
def test_a_run_is_that_of_torch_on_the_host(
    settings: dict[str, Any], device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the CPU to the bit; a GPU rounds sums in another order."""
    there = simulated(net(), device=device, **settings)
    monkeypatch.setattr(vectors, "HOST", {"cpu"})
    here = simulated(net(), fast=False, threads=1, **settings)
    if device.type == "cpu":
        assert weights(there).tobytes() == weights(here).tobytes()
        assert [record.uplink_bytes for record in there.rounds] == [record.uplink_bytes for record in here.rounds]
        assert [record.metric for record in there.rounds] == [record.metric for record in here.rounds]
    assert there.summary.last_mean == pytest.approx(here.summary.last_mean, abs=0.1)


def test_updates_and_memories_stay_there(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TorchVector, "host", lambda self: pytest.fail("all of it crossed"))
    assert simulated(net(), device=device).summary.uplink_bytes > 0


def test_residuals_that_have_no_room_there_are_on_the_host_and_no_byte_changes(device: torch.device) -> None:
    dim = sum(parameter.numel() for parameter in net().parameters())
    for room in (0, 4e-6 * dim, 8e-6 * dim):
        few, all_ = simulated(net(), device=device, device_memory_mb=room), simulated(net(), device=device)
        assert weights(few).tobytes() == weights(all_).tobytes()


def test_a_method_without_a_form_is_refused_with_the_cure_which_works(device: torch.device) -> None:
    with pytest.raises(InputError, match="qsgd has no form for a device: device_memory_mb=0 copies each update"):
        simulated(net(), device=device, method="qsgd")
    assert simulated(net(), device=device, method="qsgd", device_memory_mb=0).summary.uplink_bytes > 0


def test_an_interrupted_run_goes_on_to_the_same_bytes(device: torch.device, tmp_path: Path) -> None:
    whole = simulated(net(0.2), device=device, out=tmp_path / "whole", checkpoint_seconds=0)

    def stop(round: gf.Round) -> None:
        if round.round == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulated(net(0.2), device=device, out=tmp_path / "parts", checkpoint_seconds=0, callbacks=[OnRound(stop)])
    parts = simulated(net(0.2), device=device, out=tmp_path / "parts", checkpoint_seconds=0)
    assert weights(parts).tobytes() == weights(whole).tobytes()


@pytest.mark.parametrize("precision", ["bf16", "f16"])
@pytest.mark.parametrize("optimizer", [None, "adamw"])
def test_steps_in_half_precision_learn(precision: Any, optimizer: str | None, device: torch.device) -> None:
    settings = {"optimizer": optimizer, "stepsize": 0.01 if optimizer else 0.3, "iterations": 150}
    half = simulated(net(), device=device, precision=precision, **settings)
    full = simulated(net(), device=device, **settings)
    assert half.model.get_parameter("0.weight").dtype == torch.float32
    assert weights(half).tobytes() != weights(full).tobytes()
    assert half.summary.last_mean == pytest.approx(full.summary.last_mean, abs=0.08)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_parameters_in_half_precision_are_taken_and_given_back_as_they_are(
    kind: torch.dtype, device: torch.device
) -> None:
    given = net().to(device, kind)
    before = copy.deepcopy(given.state_dict())
    result = simulated(given, loss=own_loss)
    assert {tensor.dtype for tensor in result.model.state_dict().values()} == {kind}
    assert {tensor.device.type for tensor in result.model.state_dict().values()} == {device.type}
    assert all(torch.equal(tensor, before[name]) for name, tensor in given.state_dict().items())
    assert result.summary.last_mean > 0.4


def test_samples_in_another_precision_than_the_parameters_are_refused_with_the_cure() -> None:
    *clients, test = data()
    with pytest.raises(InputError, match=r"holds float32 numbers, which a model of bfloat16 weights .*tensor.bfloat16"):
        gf.simulate(net().to(torch.bfloat16), clients, test, stepsize=0.1, iterations=5)


def own_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs.float(), targets)


def test_a_step_whose_gradients_overflow_is_left_out(device: torch.device) -> None:
    """Values of 1e5 are infinite in float16; the run goes on."""

    def huge(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs, targets) * 1e5

    result = simulated(net(), device=device, precision="f16", loss=huge, stepsize=1e-6)
    assert np.isfinite(weights(result)).all()


def test_words_that_are_wrong_are_refused() -> None:
    with pytest.raises(InputError, match="precision must be one of f32, bf16, f16, got 'fp8'"):
        simulated(net(), precision="fp8")
    with pytest.raises(InputError, match="device 'gpu' can't be used here"):
        simulated(net(), device="gpu")


class Draws(TorchDispatchMode):
    """Whether operations are given something to draw from."""

    def __init__(self) -> None:
        super().__init__()
        self.given: set[str] = set()

    def __torch_dispatch__(self, function: Any, kinds: Any, arguments: Any = (), named: Any = None) -> Any:
        if (named or {}).get("generator") is not None:
            self.given.add(function._schema.name)
        return function(*arguments, **(named or {}))


@pytest.mark.parametrize(("where", "given"), [("meta", False), ("cpu", True)])
def test_a_device_draws_from_its_own_state_and_the_cpu_from_the_clients(where: str, given: bool) -> None:
    """A GPU refuses a generator of the CPU; the device that holds nothing stands for it."""
    with Draws() as seen, drawing_from(torch.Generator()):
        nn.functional.dropout2d(torch.empty(3, 4, 5, 5, device=where), 0.5)
        torch.rand(3, device=where, generator=None)
    assert bool(seen.given) is given, seen.given


def test_dropout_is_seeded_on_the_device_of_the_run_also_where_another_one_is_current(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    monkeypatch.setattr(torch.cuda, "manual_seed", lambda seed: pytest.fail("only the current device is seeded"))
    seed_device(torch.device("cuda:1"), 7)
    assert seeds == [7]


def test_a_loss_may_be_a_vector_of_one_element(device: torch.device) -> None:
    """As it may on the host."""
    plain = simulated(net(), device=device, loss=own_loss)
    vector = simulated(net(), device=device, loss=lambda outputs, targets: own_loss(outputs, targets).reshape(1))
    assert weights(vector).tobytes() == weights(plain).tobytes()


def test_a_run_in_half_precision_has_a_directory(device: torch.device, tmp_path: Path) -> None:
    """Whose identity is of the samples, which numpy has no type for."""
    first = simulated(net().to(torch.bfloat16), device=device, loss=own_loss, out=tmp_path / "run")
    again = simulated(net().to(torch.bfloat16), device=device, loss=own_loss, out=tmp_path / "run")
    assert weights(first).tobytes() == weights(again).tobytes()


def test_a_precision_that_can_not_be_is_refused_with_the_cure(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="these are of float16: leave it out, or give model"):
        simulated(net().half(), device=device, precision="f16", loss=own_loss)
    monkeypatch.setitem(KINDS, "bf16", torch.float64)  # as a backend without bf16: torch warns, and computes in float32
    with pytest.raises(InputError, match=r"can't compute in bf16 on .*: leave out precision"):
        simulated(net(), device=device, precision="bf16")


def test_a_model_that_holds_nothing_is_refused_with_the_cure() -> None:
    with pytest.raises(InputError, match="the model is on 'meta', which holds nothing: give it weights first"):
        simulated(net().to("meta"))


def test_the_vector_is_of_float32_whatever_torchs_usual_type_is(device: torch.device) -> None:
    module, before = net().to(device), torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        flat = FlatModule(module)
    finally:
        torch.set_default_dtype(before)
    assert flat.is_exact
    assert flat.weights.dtype == torch.float32

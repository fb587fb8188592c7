"""A client whose model is on a device sends the same bytes as one on the host, and only they cross."""

import re
import secrets
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import gammafl as gf
from gammafl.core.device import vectors
from gammafl.core.device.torch_vectors import TorchVector
from gammafl.methods.registry import names
from tests.device.counting import counted

pytestmark = pytest.mark.device
SCHEDULE = gf.Schedule(gf.InverseDecay(1.0, 10.0), iterations=100)
FORMS = [
    "fedavg", "ht:level=paper,keep=0.2", "gamma-fedht:keep=0.1", "gamma-fedht-q:keep=0.1",
    "gamma-fedht:keep=0.1,values=8bit", "top-k:k=9", "top-k:keep=0.1,scope=tensor", "stc:keep=0.1", "rand-k:keep=0.1",
    "dagc-r:keep=0.1", "top-k:keep=0.1,values=bf16",
]  # fmt: skip


def net(seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(13, 17), nn.BatchNorm1d(17), nn.ReLU(), nn.Linear(17, 5))
    for tensor in module.parameters():
        nn.init.normal_(tensor)
    return module.to(dtype)


def moved(state: dict[str, torch.Tensor], seed: int) -> dict[str, torch.Tensor]:
    """The state after some training, on the same device."""
    rng = np.random.default_rng(seed)
    steps = {name: torch.from_numpy(rng.standard_normal(tensor.shape)).to(tensor) for name, tensor in state.items()}
    return {name: tensor + steps[name] for name, tensor in state.items()}


def play(method: str, where: Any, rounds: int = 6, dtype: torch.dtype = torch.float32, **told: Any) -> tuple[Any, ...]:
    """Uploads, the final model and the residual; every third upload is lost."""
    module = net(dtype=dtype).to(where)
    server, client = gf.Server(method, SCHEDULE, like=module), gf.Client("a", method, like=module, **told)
    uploads = []
    for number in range(rounds):
        offer = server.offer("a")
        start = client.begin(module, offer)
        state = {**module.state_dict(), **{name: torch.as_tensor(part) for name, part in start.items()}}
        after = moved(state, number)
        uploads.append(client.encode(state, after, offer))
        if number % 3 != 2:
            server.accept("a", uploads[-1])
        server.step(module)
    final = {name: tensor.float().cpu() for name, tensor in module.state_dict().items()}
    return uploads, final, client.residual


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("method", FORMS)
def test_uploads_models_and_residuals_are_those_of_the_host(
    method: str, dtype: torch.dtype, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda length: "0" * 2 * length)  # no other names, no other keys
    there = play(method, device, dtype=dtype)
    monkeypatch.setattr(vectors, "HOST", {"cpu"})
    here = play(method, "cpu", dtype=dtype)
    assert there[0] == here[0]
    assert there[2].tobytes() == here[2].tobytes()
    for name, tensor in here[1].items():
        assert torch.equal(tensor, there[1][name]), name


def test_no_dense_copy_is_made_on_the_host(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not of the update, nor of the model: what crosses are the entries that are sent, and room for a few more."""
    whole = nn.Linear(100, 300).to(device)
    client = gf.Client("a", "top-k:keep=0.01", like=whole)
    server = gf.Server("top-k:keep=0.01", SCHEDULE, like=whole)
    monkeypatch.setattr("gammafl.federated.models._array", lambda tensor: pytest.fail("a tensor crossed"))
    with counted() as counts:
        server.accept("a", client.encode(whole, moved(whole.state_dict(), 1), server.offer("a")))
        assert server.step(whole).kept == 303
    assert 0 < max(counts.crossings) < 4 * 30_300 / 5


def test_methods_without_a_form_are_refused_with_the_cure(device: torch.device) -> None:
    with pytest.raises(gf.InputError, match="qsgd has no form for a device: device='cpu' copies"):
        gf.Client("a", "qsgd", like=net().to(device))


def test_a_copy_is_made_where_it_is_asked_for(device: torch.device) -> None:
    """A memory on the host takes updates from anywhere."""
    memory = gf.method_named("qsgd").memory.client(gf.method_named("qsgd"), 40)
    values = np.random.default_rng(0).standard_normal(40).astype(np.float32)
    sent = memory.propose(torch.from_numpy(values).to(device), gf.Moment())
    assert sent == gf.method_named("qsgd")(values, gf.Moment())


def test_a_tensor_on_a_device_needs_a_word_where_the_client_was_made_for_the_host(device: torch.device) -> None:
    vector = torch.ones(6, device=device)
    server, client = gf.Server("top-k:k=2", SCHEDULE, like=6), gf.Client("a", "top-k:k=2", like=6)
    with pytest.raises(gf.InputError, match=r"before is on .*, but client a compresses on the host: give gf.Client"):
        client.encode(vector, vector - 1, server.offer("a"))


def test_a_state_is_saved_and_loaded_wherever_it_is(device: torch.device, tmp_path: Path) -> None:
    module = net().to(device)
    server, client = gf.Server("top-k:k=5", SCHEDULE, like=module), gf.Client("a", "top-k:k=5", like=module)
    client.encode(module, moved(module.state_dict(), 1), server.offer("a"))
    client.save(tmp_path / "state")
    other = gf.Client("a", "top-k:k=5", like=module)
    other.load(tmp_path / "state")
    assert isinstance(other._state.outbox.memory.state()["residual"], TorchVector)
    assert other.residual.tobytes() == client.residual.tobytes()


def test_compressors_and_methods_take_tensors_where_they_are(device: torch.device) -> None:
    values = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    tensor = torch.from_numpy(values).to(device, copy=True)
    for method in (gf.top_k(k=7), gf.TopK(7), gf.HardThreshold(1.0), gf.method_named("gamma-fedht-q:keep=0.01")):
        assert method(tensor) == method(values)
    assert torch.equal(tensor.cpu(), torch.from_numpy(values))


def test_every_method_says_whether_it_has_a_form(device: torch.device) -> None:
    """And those that say so work."""
    tensor = torch.linspace(-1, 1, 500, device=device)
    for name in names():
        method = gf.method_named(name)
        if method.on_device:
            assert len(method(tensor)) > 0
        else:
            with pytest.raises(gf.InputError, match=r"has no form for a device; give it vector.cpu\(\)"):
                method(tensor)


def test_a_device_that_is_not_there_is_refused_with_the_cure() -> None:
    with pytest.raises(gf.InputError, match=r"device 'hpu:7' can't be used here .*; device='cpu' works anywhere"):
        gf.Client("a", "top-k:k=2", like=6, device="hpu:7")


def test_a_client_outlives_the_inference_mode_that_it_was_made_in(device: torch.device) -> None:
    module = net().to(device)
    server = gf.Server("top-k:k=5", SCHEDULE, like=module)
    with torch.inference_mode():
        client = gf.Client("a", "top-k:k=5", like=module)
        server.accept("a", client.encode(module, moved(module.state_dict(), 1), server.offer("a")))
        server.step(module)
        client.load_state_dict(client.state_dict())
    before = client.residual
    server.accept("a", client.encode(module, moved(module.state_dict(), 2), server.offer("a")))
    assert client.residual.tobytes() != before.tobytes()


class OwnTopK(gf.TopK):
    on_device = True


class OwnMemory(gf.ErrorFeedback):
    on_device = True


@pytest.mark.parametrize("method", [gf.Method(OwnTopK(2)), gf.Method(gf.TopK(2), memory=OwnMemory())], ids=repr)
def test_parts_of_ones_own_are_for_the_host(method: gf.Method, device: torch.device) -> None:
    """They may do with a vector what numpy can, and a compressor's work is checked against all of it."""
    with pytest.raises(gf.InputError, match="has no form for a device: device='cpu' copies"):
        gf.Client("a", method, like=net().to(device))


def test_the_page_names_the_methods_that_work_there() -> None:
    page = (Path(__file__).parents[2] / "docs/devices.md").read_text()
    sentence = re.search(r"## Which methods\n\n(.*?) work on a device", page, re.S)
    assert sentence
    named = re.split(r",\s+|\s+and\s+", sentence[1])
    assert sorted(named) == sorted(name for name in names() if gf.method_named(name).on_device)

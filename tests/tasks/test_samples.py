"""Data sets that can't be trained on are refused in one line that names the sample and what to do."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import gammafl as gf

X, Y = torch.linspace(-1, 1, 48).view(12, 4), torch.arange(12) % 3
GOOD = TensorDataset(X, Y)


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield GOOD[0]


WRONG: dict[str, tuple[Any, str]] = {
    "no numbers": (Endless(), "@ is an Endless: give a data set with a length"),
    "nothing": (None, "@ is None: give a data set"),
    "a table": ({"x": X, "y": Y}, "@ is a dict: give a data set"),
    "empty": (TensorDataset(X[:0], Y[:0]), "@ is empty"),
    "an empty list": ([], "@ is empty"),
    "two tensors": ((X, Y), r"@\[\d+\] is a Tensor: TensorDataset\(inputs, targets\)"),
    "list as input": ([([1.0, 2.0], 1)], r"@\[\d+\] has a list as input: let the data set make a tensor of it"),
    "text in a dict": ([{"x": X[0], "text": "a"}], r"@\[\d+\] has a str as input 'text': .* or leave it out"),
    "labels alone": ([{"labels": 1}], r"@\[\d+\] is a dict without inputs"),
    "text as input": ([("some text", 1)], r"@\[\d+\] has a str as input"),
    "text as target": ([(X[0], "cat")], r"@\[\d+\] has a str as target"),
    "no target": ([(X[0], None)], r"@\[\d+\] has None as target"),
    "inputs alone": (TensorDataset(X), r"@\[\d+\] is a tuple of 1"),
    "only text": (["one", "two"], r"@\[\d+\] is a str"),
    "ragged inputs": ([(X[0], 0), (X[0, :3], 1)], r"inputs of @\[.\] and @\[.\] have shapes \[.\] and \[.\]"),
    "ragged targets": ([(X[0], 0), (X[0], Y[:2])], r"targets of @\[.\] and @\[.\] have shapes"),
}


def trained(clients: Any, test: Any, **settings: Any) -> Any:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    chosen: dict[str, Any] = {"stepsize": gf.Constant(0.1), "iterations": 5, "batch_size": 8} | settings
    return gf.simulate(module, clients, test, **chosen)


@pytest.mark.parametrize(("dataset", "problem"), WRONG.values(), ids=WRONG)
def test_a_data_set_that_does_not_fit_is_named_in_one_line(dataset: Any, problem: str) -> None:
    places: dict[str, Callable[[], Any]] = {
        r"client_datasets\[0\]": lambda: trained([dataset, GOOD], GOOD, participation=1),
        r"client_datasets\[1\]": lambda: trained([GOOD, dataset], GOOD, participation=1),
        "test_dataset": lambda: trained([GOOD], dataset, evaluate_every=1),
    }
    for place, train in places.items():
        with pytest.raises(gf.InputError, match=problem.replace("@", place)) as found:
            train()
        assert "\n" not in str(found.value)


def test_a_sample_that_does_not_fit_is_found_before_anybody_trains() -> None:
    with pytest.raises(gf.InputError, match=r"test_dataset\[0\]"):
        gf.torch_task(nn.Linear(4, 3), [GOOD], [(None, 1)], 8)  # type: ignore[arg-type]


@pytest.mark.parametrize("one", [GOOD, DataLoader(GOOD), []], ids=["data set", "loader", "empty"])
def test_clients_that_are_no_list_of_data_sets_are_refused(one: Any) -> None:
    with pytest.raises(gf.InputError, match=r"client_datasets is .*: give a"):
        trained(one, GOOD)


class Shifted(TensorDataset):
    def __getitem__(self, i: int) -> Any:
        x, y = super().__getitem__(i)
        return x + 1, y


FORMS: dict[str, Any] = {
    "a list": [(x + 1, int(y)) for x, y in zip(X, Y, strict=True)],
    "arrays": [((x + 1).numpy(), np.int64(y)) for x, y in zip(X, Y, strict=True)],
    "a TensorDataset of one's own": Shifted(X, Y),
}


@pytest.mark.parametrize("dataset", FORMS.values(), ids=FORMS)
def test_pairs_in_any_form_are_trained_on_as_tensors_are(dataset: Any) -> None:
    plain = TensorDataset(X + 1, Y)
    assert trained([dataset] * 2, dataset).rounds == trained([plain] * 2, plain).rounds


@pytest.mark.parametrize("use", ["gf.simulate", "gf.torch_task(None, [], None, 1)", "from gammafl import simulate"])
def test_without_torch_the_extra_that_brings_it_is_named(use: str) -> None:
    code = f"import sys; sys.modules['torch'] = None\nimport gammafl as gf\n{use}"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = run.stderr.strip().splitlines()[-1]
    assert last.endswith("InputError: this needs torch, which is not installed: pip install 'gammafl[train]'")

"""Several inputs, inputs by name, batches of HuggingFace's kind, and loaders train as plain pairs of tensors do."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

import gammafl as gf
from tests.tasks.test_samples import GOOD, Endless, X, Y


class TwoInputs(nn.Module):
    """The plain network, of an input that comes in two halves."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, left: torch.Tensor, right: torch.Tensor | None = None) -> torch.Tensor:
        return self.layers(left if right is None else torch.cat([left, right], 1))


@dataclass
class Output:
    loss: torch.Tensor | None
    logits: torch.Tensor


class OfNames(TwoInputs):
    """As HuggingFace's models: it is called by names, and computes its loss itself where it gets labels."""

    def forward(  # type: ignore[override]
        self, left: torch.Tensor, right: torch.Tensor, labels: torch.Tensor | None = None
    ) -> Any:
        logits = super().forward(left, right)
        return Output(None if labels is None else nn.functional.cross_entropy(logits, labels), logits)


class OfNamesInADict(OfNames):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return vars(super().forward(*args, **kwargs))


def records(module: nn.Module, data: Any, test: Any = None, **settings: Any) -> Any:
    chosen: dict[str, Any] = {"stepsize": 0.1, "iterations": 15, "batch_size": 4, "evaluate_every": 1} | settings
    return gf.simulate(module, [data] * 3, data if test is None else test, **chosen).rounds


LEFT, RIGHT = X[:, :2], X[:, 2:]
ROWS = list(zip(LEFT, RIGHT, Y, strict=True))
DICTS = [{"left": x, "right": z, "labels": int(y)} for x, z, y in ROWS]

FORMS: dict[str, tuple[Callable[[], nn.Module], Any, Any]] = {
    "tuples": (TwoInputs, TensorDataset(LEFT, RIGHT, Y), None),
    "a tuple and a target": (TwoInputs, [((x, z), y) for x, z, y in ROWS], None),
    "names and a target": (TwoInputs, [({"right": z, "left": x}, y) for x, z, y in ROWS], None),
    "dicts and the model's loss": (OfNames, DICTS, None),
    "a model that gives a dict": (OfNamesInADict, DICTS, None),
    "dicts and a loss of one's own": (OfNames, DICTS, nn.functional.cross_entropy),
    "dicts and a plain module": (TwoInputs, DICTS, nn.functional.cross_entropy),
}


@pytest.mark.parametrize("form", FORMS)
def test_inputs_of_any_form_are_trained_on_as_one_tensor_is(form: str) -> None:
    make, data, loss = FORMS[form]
    assert records(make(), data, loss=loss) == records(TwoInputs(), GOOD)


def test_targets_of_several_parts_go_to_ones_own_loss() -> None:
    def loss(outputs: torch.Tensor, targets: Any) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs, targets["class"])

    data: Any = [(x, {"class": y, "other": x}) for x, y in zip(X, Y, strict=True)]
    settings: dict[str, Any] = {"metric": "loss"}
    assert records(TwoInputs(), data, loss=loss, **settings) == records(TwoInputs(), GOOD, **settings)
    with pytest.raises(
        gf.InputError, match=r"client_datasets\[0\] has samples with \{class, other\} as target: give a"
    ):
        records(TwoInputs(), data)


def padded(items: list[Any]) -> Any:
    """Rows of different lengths, filled up with zeros to the longest of the batch, and a fourth column at the least."""
    rows = nn.utils.rnn.pad_sequence([*(x for x, _ in items), torch.zeros(4)], batch_first=True)[:-1]
    return rows, torch.tensor([y for _, y in items])


RAGGED: Any = [(x[: 2 + i % 3], int(y)) for i, (x, y) in enumerate(zip(X, Y, strict=True))]
FILLED = TensorDataset(padded(RAGGED)[0], Y)

LOADERS: dict[str, tuple[Any, Any]] = {
    "plain": (DataLoader(GOOD, batch_size=4), GOOD),
    "shuffled": (DataLoader(GOOD, batch_size=4, shuffle=True, drop_last=True), GOOD),
    "with workers": (DataLoader(GOOD, batch_size=4, num_workers=2), GOOD),
    "that pads": (DataLoader(RAGGED, batch_size=4, collate_fn=padded), FILLED),
}


@pytest.mark.parametrize("sampler", ["replacement", "epochs"])
@pytest.mark.parametrize("name", LOADERS)
def test_a_loader_is_its_data_set_its_batch_size_and_its_collate_function(name: str, sampler: Any) -> None:
    loader, plain = LOADERS[name]
    got = records(TwoInputs(), loader, batch_size=None, sampler=sampler)
    expected = records(TwoInputs(), plain, DataLoader(plain, batch_size=4), sampler=sampler)
    assert got == expected


def test_a_collate_function_may_draw_random_numbers_and_the_seed_fixes_them() -> None:
    def noisy(items: list[Any]) -> Any:
        x, y = zip(*items, strict=True)
        return torch.stack(x) + torch.randn(len(x), 4), torch.stack(y)

    loader = DataLoader(GOOD, batch_size=4, collate_fn=noisy)
    runs = [records(TwoInputs(), loader, GOOD, batch_size=None, seed=seed) for seed in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]


REFUSED: dict[str, tuple[Any, str]] = {
    "a generator": (
        DataLoader(GOOD, 4, shuffle=True, generator=torch.Generator()),
        r"client_datasets\[0\] is a DataLoader with a generator of its own, and the run's seed orders the samples",
    ),
    "a sampler": (DataLoader(GOOD, 4, sampler=WeightedRandomSampler([1.0] * 12, 12)), "with a sampler of its own"),
    "a batch sampler": (DataLoader(GOOD, batch_sampler=[[0, 1]]), "with a batch_sampler of its own"),
    "a stream": (DataLoader(Endless(), 4), r"client_datasets\[0\].dataset is an Endless"),
    "another size": (DataLoader(GOOD, 5), "batch_size=4, but the DataLoaders have batches of 5: leave one out"),
    "text": (DataLoader(GOOD, 4, collate_fn=lambda items: ("a", "b")), r"a batch of client_datasets\[0\].dataset has"),
}


@pytest.mark.parametrize(("loader", "problem"), REFUSED.values(), ids=REFUSED)
def test_a_loader_whose_order_is_not_the_runs_is_refused(loader: Any, problem: str) -> None:
    with pytest.raises(gf.InputError, match=problem):
        records(TwoInputs(), loader)


def test_loaders_of_different_batch_sizes_are_refused() -> None:
    with pytest.raises(gf.InputError, match=r"batches of different sizes, .*5"):
        gf.torch_task(TwoInputs(), [DataLoader(GOOD, 4), DataLoader(GOOD, 5)], GOOD)


def test_without_a_batch_size_the_loaders_say_it_or_it_is_fifty() -> None:
    assert gf.torch_task(TwoInputs(), [GOOD, DataLoader(GOOD, 7)], DataLoader(GOOD, 3)).batch_size == 7
    assert gf.torch_task(TwoInputs(), [GOOD], DataLoader(GOOD, 3)).evaluation_batch == 3
    assert gf.torch_task(TwoInputs(), [GOOD], GOOD).batch_size == 50


MIXED: dict[str, tuple[Any, Any]] = {
    "pairs and dicts": (GOOD, DICTS),
    "dicts and pairs": (DICTS, GOOD),
    "other names": (DICTS, [{"left": x, "labels": 1} for x in LEFT]),
    "two inputs and one": (TensorDataset(LEFT, RIGHT, Y), GOOD),
}


@pytest.mark.parametrize(("first", "other"), MIXED.values(), ids=MIXED)
def test_clients_with_samples_of_another_form_are_named(first: Any, other: Any) -> None:
    module: Any = OfNames() if first is DICTS else TwoInputs()
    with pytest.raises(gf.InputError, match=r"client_datasets\[1\] has samples .*client_datasets\[0\] has .*alike"):
        gf.simulate(module, [first, other], first, stepsize=0.1, iterations=5, participation=1)
    with pytest.raises(gf.InputError, match=r"test_dataset has samples .*, and client_datasets\[0\] has"):
        gf.torch_task(module, [first], other)


def test_a_model_that_can_not_be_called_with_the_samples_is_named() -> None:
    images: Any = [{"img": x, "labels": int(y)} for x, y in zip(X, Y, strict=True)]
    with pytest.raises(gf.InputError, match="TwoInputs can't be called with img"):
        records(TwoInputs(), images, loss=nn.functional.cross_entropy)
    with pytest.raises(gf.InputError, match="gave no loss: give samples 'labels'"):
        records(OfNames(), [{"left": x, "right": z} for x, z, _ in ROWS], metric="loss")


def test_other_data_is_told_apart_in_every_part_of_a_sample() -> None:
    def fingerprint(data: Any) -> int:
        return gf.torch_task(OfNames(), [data], data).fingerprint()

    changed = [{**one, "right": one["right"] + 1} for one in DICTS]
    assert fingerprint(DICTS) == fingerprint(list(DICTS)) != fingerprint(changed)


def test_a_small_transformer_of_huggingface_trains_on_dicts() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, num_labels=2
    )
    model = transformers.BertForSequenceClassification(config)
    rng = np.random.default_rng(0)
    tokens = rng.integers(2, 20, (40, 6))
    labels = (tokens[:, 0] > 10).astype(np.int64)
    data: Any = [
        {"input_ids": row, "attention_mask": np.ones(6, np.int64), "labels": label}
        for row, label in zip(tokens, labels, strict=True)
    ]
    result = gf.simulate(
        model, [data[:20], data[20:]], data, stepsize=0.01, iterations=100, batch_size=8, participation=1,
        method="fedavg", optimizer="adamw:weight_decay=0.01", evaluate_every=1,
    )  # fmt: skip
    losses = [record.loss for record in result.rounds if record.loss is not None]
    assert losses[-1] < 0.5 * losses[0]

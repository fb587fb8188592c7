"""A user's data sets as samples. An error names a data set that can't be used."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, TensorDataset, default_collate

from gammafl.core.errors import InputError, require
from gammafl.tasks.nested import Nested, form_of
from gammafl.tasks.objective import LABELS
from gammafl.tasks.samples import Batch, Indices, Samples, TensorSamples

NUMBERS = (torch.Tensor, np.ndarray, np.number, np.bool_, int, float)
"""The allowed types of an input or a target of a sample."""


class OwnSamples:
    """The base class for samples of a user's data. `like` is the form that batches must have, and whose form it is."""

    batch_by_batch = False

    def __init__(self, dataset: Any, name: str) -> None:
        self.dataset = dataset
        self.name = name
        self.like: tuple[str, str] | None = None

    def __len__(self) -> int:
        return len(self.dataset)

    def peek(self) -> Any:
        """The first sample, or a batch with it, unchanged."""
        return self.dataset[0]

    def batch(self, indices: Indices) -> Batch:
        batch = self._batch(indices)
        if self.like is not None and (form := form_of(batch)) != self.like[1]:
            raise InputError(f"{self.name} has samples {form}, and {self.like[0]} has {self.like[1]}: make them alike")
        return batch

    def _batch(self, indices: Indices) -> Batch:
        raise NotImplementedError


class DatasetSamples(OwnSamples):
    """Any torch dataset with a length. Its items are read one by one, so that its transforms stay random."""

    def _batch(self, indices: Indices) -> Batch:
        items = [_pair(f"{self.name}[{row}]", self.dataset[int(row)]) for row in indices]
        for row, item in zip(indices, items, strict=True):
            for part, one, other in zip(("inputs", "targets"), items[0], item, strict=True):
                if (shapes := _shapes(one)) != (others := _shapes(other)):
                    raise InputError(
                        f"the {part} of {self.name}[{indices[0]}] and {self.name}[{row}] have shapes"
                        f" {shapes} and {others}: make them alike, as by padding, or give a DataLoader"
                        " with a collate_fn that pads"
                    )
        return _stacked([item[0] for item in items]), _stacked([item[1] for item in items])


class CollatedSamples(OwnSamples):
    """A data set with a user's collate function. It makes each batch separately: it may pad, or draw random numbers."""

    batch_by_batch = True

    def __init__(self, dataset: Any, name: str, collate: Callable[[list[Any]], Any]) -> None:
        super().__init__(dataset, name)
        self.collate = collate

    def peek(self) -> Any:
        return self.collate([self.dataset[0]])

    def _batch(self, indices: Indices) -> Batch:
        made = self.collate([self.dataset[int(row)] for row in indices])
        return _pair(f"a batch of {self.name}", made, lists=True)


def as_samples(dataset: Any, name: str, collate: Callable[[list[Any]], Any] = default_collate) -> Samples:
    """`dataset` as samples. An error with its `name` if it is empty, or has no samples by number."""
    by_number = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    if not by_number or isinstance(dataset, IterableDataset | Mapping):
        raise InputError(
            f"{name} is {kind_of(dataset)}: give a data set with a length whose samples can be asked for by number,"
            " such as a torch.utils.data.Dataset with __len__ and __getitem__, or a list of pairs"
        )
    require(len(dataset) > 0, f"{name} is empty: give it at least one sample, or leave it out")
    if collate is not default_collate:
        return CollatedSamples(dataset, name, collate)
    plain = isinstance(dataset, TensorDataset) and type(dataset).__getitem__ is TensorDataset.__getitem__
    return TensorSamples(dataset) if plain and len(dataset.tensors) == 2 else DatasetSamples(dataset, name)


def kind_of(value: Any) -> str:
    """'a dict', 'an int', 'None'."""
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def _pair(name: str, item: Any, lists: bool = False) -> tuple[Nested, Nested]:
    """(inputs, targets) of a sample: a pair, a tuple whose last is the target, or a dict that may have labels."""
    if isinstance(item, torch.Tensor):
        hint = "TensorDataset(inputs, targets) makes pairs of two tensors"
        raise InputError(f"samples must be pairs (input, target), but {name} is a Tensor: {hint}")
    if isinstance(item, Mapping):
        named = {key: value for key, value in item.items() if key != LABELS}
        require(bool(named), f"{name} is a dict without inputs: give it what the model's forward takes")
        labels = _checked(name, "target", item[LABELS], lists) if LABELS in item else None
        return _checked(name, "input", named, lists), labels
    if not (isinstance(item, tuple | list) and len(item) >= 2):
        got = f"{kind_of(item)} of {len(item)}" if isinstance(item, tuple | list) else kind_of(item)
        raise InputError(
            f"samples must be pairs (input, target), tuples (input, …, target) or dicts, but {name} is {got}: let the"
            " data set make one"
        )
    *several, target = item
    inputs = several[0] if len(several) == 1 else tuple(several)
    return _checked(name, "input", inputs, lists), _checked(name, "target", target, lists)


def _checked(name: str, part: str, value: Any, lists: bool) -> Nested:
    """`value` with other kinds of dicts and tuples replaced by plain ones, at all depths."""
    if isinstance(value, NUMBERS):
        return value
    if isinstance(value, Mapping) and value:
        return {str(key): _checked(name, f"{part} {key!r}", inner, lists) for key, inner in value.items()}
    if (isinstance(value, tuple) and value) or (lists and isinstance(value, list) and value):
        return tuple(_checked(name, part, inner, lists) for inner in value)
    raise InputError(
        f"samples must be of tensors, arrays and numbers, but {name} has {kind_of(value)} as {part}: let the data set"
        " make a tensor of it, or leave it out"
    )


def _shapes(tree: Nested) -> Any:
    if isinstance(tree, Mapping):
        return {name: _shapes(part) for name, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_shapes(part) for part in tree)
    return None if tree is None else list(np.shape(tree))


def _stacked(parts: list[Nested]) -> Nested:
    """The same parts of several samples, with equal shapes, as a batch."""
    first = parts[0]
    if isinstance(first, Mapping):
        return {name: _stacked([part[name] for part in parts]) for name in first}
    if isinstance(first, tuple):
        return tuple(_stacked(list(same)) for same in zip(*parts, strict=True))
    return None if first is None else default_collate(parts)

"""A data set or a DataLoader for each client, and one to test on.

Of a DataLoader, only its data set, its batch size and its collate function are used. The run's seed and sampler order
the samples, so that a run can be repeated and resumed. A loader with its own order is refused.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler, SequentialSampler

from gammafl.core.errors import InputError, require
from gammafl.tasks.nested import form_of
from gammafl.tasks.own_samples import OwnSamples, as_samples, kind_of
from gammafl.tasks.samples import Samples

DEFAULT_BATCH = 50
PAIR = "(tensor, tensor)"


@dataclass(frozen=True)
class OwnData:
    """The clients' samples, the test set, and the loaders' batch size."""

    clients: list[Samples]
    test: Samples
    are_dicts: bool
    """Whether a sample is a dict, as in HuggingFace's data sets."""

    batch_size: int | None
    test_batch: int | None

    def chosen_batch(self, batch_size: int | None) -> int:
        """`batch_size`, or the loaders' own."""
        agree = batch_size is None or self.batch_size in (None, batch_size)
        require(agree, f"batch_size={batch_size}, but the DataLoaders have batches of {self.batch_size}: leave one out")
        return (self.batch_size or DEFAULT_BATCH) if batch_size is None else batch_size


def own_data(client_datasets: Iterable[Any], test_dataset: Any, default_loss: bool = True) -> OwnData:
    """Reads the user's data sets, and raises an error before the training if their samples can't be used."""
    if isinstance(client_datasets, Dataset | DataLoader):
        raise InputError(
            f"client_datasets is {kind_of(client_datasets)}: give a list with a data set for each client, such as"
            " torch.utils.data.random_split makes"
        )
    given = {f"client_datasets[{i}]": dataset for i, dataset in enumerate(client_datasets)}
    require(bool(given), "client_datasets is empty: give a data set for each client")
    clients = [_samples(dataset, name) for name, dataset in given.items()]
    test = _samples(test_dataset, "test_dataset")
    sizes = {name: dataset.batch_size for name, dataset in given.items() if isinstance(dataset, DataLoader)}
    different = [f"{name} of {size}" for name, size in sizes.items() if size != next(iter(sizes.values()))]
    require(
        not different,
        f"the DataLoaders have batches of different sizes, {next(iter(sizes.items()), None)} and {different[:1]}: give"
        " all one batch_size",
    )
    return OwnData(
        clients,
        test,
        _alike(list(given), clients, test, default_loss),
        next(iter(sizes.values()), None),
        test_dataset.batch_size if isinstance(test_dataset, DataLoader) else None,
    )


def _samples(dataset: Any, name: str) -> Samples:
    if not isinstance(dataset, DataLoader):
        return as_samples(dataset, name)
    loader: DataLoader[Any] = dataset
    own_order = f"{name} is a DataLoader with {{}} of its own, and the run's seed orders the samples: leave it out"
    require(loader.generator is None, own_order.format("a generator"))
    samples = as_samples(loader.dataset, f"{name}.dataset", loader.collate_fn)
    require(loader.batch_size is not None, f"{own_order.format('a batch_sampler')}, and give batch_size=")
    sampler = loader.sampler
    plain = type(sampler) is SequentialSampler or (
        type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == len(samples)
    )
    require(plain, own_order.format("a sampler"))
    return samples


def _alike(names: list[str], clients: list[Samples], test: Samples, default_loss: bool) -> bool:
    """Requires that all samples have the form of the first client's, now and later. Returns whether they are dicts."""
    first = clients[0]
    with torch.random.fork_rng(devices=[]):
        batch = first.batch(np.zeros(1, np.int64))
        are_dicts = isinstance(first, OwnSamples) and isinstance(first.peek(), Mapping)
        form = form_of(batch)
        if default_loss and not are_dicts and form_of(batch[1]) != "tensor":
            raise InputError(f"{names[0]} has samples with {form_of(batch[1])} as target: give a loss= that takes it")
        for name, samples in zip([*names, "test_dataset"], [*clients, test], strict=True):
            if isinstance(samples, OwnSamples):
                samples.like = names[0], form
            else:
                require(form == PAIR, f"{name} has samples {PAIR}, and {names[0]} has {form}: make them alike")
        test.batch(np.zeros(1, np.int64))
    return are_dicts

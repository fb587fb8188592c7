"""How samples are split over clients: one array of row numbers per client, no overlap."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from gammafl.config.schema import ContiguousPartition, DirichletPartition, LabelPartition, NaturalPartition, Partition
from gammafl.core.errors import InputError, require
from gammafl.federated.task import SampleFacts

Shards = list[NDArray[np.int64]]
Labels = NDArray[np.integer]
Scheme = Callable[[int, int, int, np.random.Generator], NDArray[np.bool_]]
"""(clients, classes, classes of a client, generator) → a table: whether client (row) holds label (column)."""


def split(facts: SampleFacts, clients: int, settings: Partition, rng: np.random.Generator) -> Shards:
    """The row numbers of each client, sorted. Every client holds at least one."""
    require(clients <= len(facts), f"{len(facts)} samples are too few for {clients} clients")
    if isinstance(settings, LabelPartition):
        shards = by_labels(_needed(facts.labels, "labels"), clients, settings.classes, SCHEMES[settings.scheme], rng)
    elif isinstance(settings, DirichletPartition):
        shards = by_dirichlet(_needed(facts.labels, "labels"), clients, settings.concentration, rng)
    elif isinstance(settings, NaturalPartition):
        shards = by_groups(_needed(facts.groups, "natural groups"), clients, rng)
    elif isinstance(settings, ContiguousPartition):
        shards = contiguous(facts, clients)
    else:
        shards = np.array_split(rng.permutation(len(facts)), clients)
    empty = [i for i, shard in enumerate(shards) if not len(shard)]
    require(not empty, f"clients {empty[:5]} would hold no samples; use fewer clients or another partition")
    return [np.sort(shard) for shard in shards]


def by_labels(labels: Labels, clients: int, per_client: int, choose: Scheme, rng: np.random.Generator) -> Shards:
    """#C=k: each client holds `per_client` labels. A label's samples are divided evenly among the clients that hold it.

    NIID-Bench: client i holds the label i mod C and k−1 others at random, so sizes differ. Equal: each label has about
    the same number of clients; in a balanced data set, clients have equally many samples if n·k is a multiple of the
    number of labels. Cyclic: client i holds the labels i … i+k−1 mod C; in a balanced data set, clients have equally
    many samples if n is a multiple of C.
    """
    classes = np.unique(labels)
    require(
        per_client <= len(classes),
        f"partition.classes={per_client}, but the data has {len(classes)} classes",
    )
    held = choose(clients, len(classes), per_client, rng)
    nobody = classes[~held.any(0)]
    require(
        len(nobody) == 0,
        f"no client would hold the label(s) {nobody.tolist()}: use more clients or a larger partition.classes",
    )
    shards: list[list[NDArray[np.int64]]] = [[] for _ in range(clients)]
    for label, value in enumerate(classes):
        holders = np.flatnonzero(held[:, label])
        rows = rng.permutation(np.flatnonzero(labels == value))
        for holder, part in zip(holders, np.array_split(rows, len(holders)), strict=True):
            shards[holder].append(part)
    return [np.concatenate(parts) for parts in shards]


def _niid_bench_labels(clients: int, classes: int, per_client: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    held = np.zeros((clients, classes), np.bool_)
    for client in range(clients):
        first = client % classes
        others = np.delete(np.arange(classes), first)
        held[client, first] = True
        held[client, rng.choice(others, per_client - 1, replace=False)] = True
    return held


def _balanced_labels(clients: int, classes: int, per_client: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Each client takes the labels that the fewest clients hold so far; equal ones at random."""
    held = np.zeros((clients, classes), np.bool_)
    for client in rng.permutation(clients):
        rarest = np.lexsort((rng.random(classes), held.sum(0)))[:per_client]
        held[client, rarest] = True
    return held


def _cyclic_labels(clients: int, classes: int, per_client: int, _: np.random.Generator) -> NDArray[np.bool_]:
    after_first = (np.arange(classes) - np.arange(clients)[:, None]) % classes
    return after_first < per_client


SCHEMES: dict[str, Scheme] = {
    "niid-bench": _niid_bench_labels,
    "equal": _balanced_labels,
    "cyclic": _cyclic_labels,
}


def _needed(fact: Labels | None, name: str) -> Labels:
    if fact is None:
        raise InputError(f"this data set has no {name}; choose another partition.kind, such as iid or contiguous")
    return fact


def contiguous(facts: SampleFacts, clients: int) -> Shards:
    """Each client gets consecutive samples, about equally many."""
    sizes = np.ones(len(facts), np.int64) if facts.sizes is None else facts.sizes
    middles = np.cumsum(sizes) - sizes / 2
    holders = np.minimum((middles * clients / sizes.sum()).astype(np.int64), clients - 1)
    return [np.flatnonzero(holders == client) for client in range(clients)]


def by_groups(groups: Labels, clients: int, rng: np.random.Generator) -> Shards:
    """Divides each group's samples among equally many clients, ±1; the first groups among one more.

    If there are more groups than clients, a client gets several consecutive groups as a whole.
    """
    names = np.unique(groups)
    if clients < len(names):
        return [np.flatnonzero(np.isin(groups, part)) for part in np.array_split(names, clients)]
    shards: Shards = []
    for name, holders in zip(names, np.array_split(np.arange(clients), len(names)), strict=True):
        shards += np.array_split(rng.permutation(np.flatnonzero(groups == name)), len(holders))
    return shards


def by_dirichlet(labels: Labels, clients: int, concentration: float, rng: np.random.Generator) -> Shards:
    """Divides each label's samples by shares from Dirichlet(concentration). Draws again if a client has none."""
    for _ in range(1000):
        shards: list[list[NDArray[np.int64]]] = [[] for _ in range(clients)]
        for value in np.unique(labels):
            rows = rng.permutation(np.flatnonzero(labels == value))
            shares = rng.dirichlet(np.full(clients, concentration))
            cuts = np.round(np.cumsum(shares)[:-1] * len(rows)).astype(np.int64)
            for shard, part in zip(shards, np.split(rows, cuts), strict=True):
                shard.append(part)
        joined = [np.concatenate(parts) for parts in shards]
        if all(len(shard) for shard in joined):
            return joined
    raise InputError(
        f"1000 draws of Dirichlet({concentration}) left some of {clients} clients without samples;"
        " use fewer clients or a larger partition.concentration"
    )

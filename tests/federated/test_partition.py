"""Partitions: nothing twice, nothing lost, and the label counts that were asked for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gammafl as gf
from gammafl.config.schema import (
    ContiguousPartition,
    DirichletPartition,
    IidPartition,
    LabelPartition,
    NaturalPartition,
    Partition,
)
from gammafl.federated.partition import Shards, split
from gammafl.federated.task import SampleFacts

LABELS = np.repeat(np.arange(10), 120)[np.random.default_rng(0).permutation(1200)]
PARTITIONS = [
    IidPartition(),
    LabelPartition(classes=2),
    LabelPartition(classes=3, scheme="equal"),
    LabelPartition(classes=2, scheme="cyclic"),
    DirichletPartition(concentration=0.5),
]


def shards_of(settings: Partition, clients: int, seed: int) -> Shards:
    return split(SampleFacts(LABELS), clients, settings, np.random.default_rng(seed))


@given(st.sampled_from(PARTITIONS), st.sampled_from([10, 20, 30]), st.integers(0, 1000))
def test_every_sample_belongs_to_exactly_one_client(settings: LabelPartition, clients: int, seed: int) -> None:
    shards = shards_of(settings, clients, seed)
    assert len(shards) == clients
    np.testing.assert_array_equal(np.sort(np.concatenate(shards)), np.arange(len(LABELS)))


@given(st.sampled_from(["niid-bench", "equal", "cyclic"]), st.integers(1, 10), st.integers(0, 1000))
def test_a_client_holds_exactly_the_labels_asked_for(scheme: str, classes: int, seed: int) -> None:
    settings = LabelPartition.model_validate({"classes": classes, "scheme": scheme})
    assert all(len(np.unique(LABELS[shard])) == classes for shard in shards_of(settings, 10, seed))


def test_niid_bench_gives_client_i_label_i_and_sizes_that_differ() -> None:
    shards = shards_of(LabelPartition(classes=2), 10, 1)
    assert all(i in LABELS[shard] for i, shard in enumerate(shards))
    assert len({len(shard) for shard in shards}) > 1


@given(st.integers(1, 10), st.sampled_from([10, 20, 50]), st.integers(0, 1000))
def test_the_cyclic_scheme_gives_client_i_the_labels_from_i_on_in_equal_shares(
    classes: int, clients: int, seed: int
) -> None:
    shards = shards_of(LabelPartition(classes=classes, scheme="cyclic"), clients, seed)
    for client, shard in enumerate(shards):
        assert set(LABELS[shard]) == {(client + step) % 10 for step in range(classes)}
    for label in range(10):
        shares = [count for shard in shards if (count := int((LABELS[shard] == label).sum()))]
        assert len(shares) == clients // 10 * classes
        assert max(shares) - min(shares) <= 1


@given(st.integers(4, 10), st.integers(0, 1000))
def test_with_seven_clients_the_cyclic_scheme_uses_all_samples_where_every_label_has_a_holder(
    classes: int, seed: int
) -> None:
    shards = shards_of(LabelPartition(classes=classes, scheme="cyclic"), 7, seed)
    np.testing.assert_array_equal(np.sort(np.concatenate(shards)), np.arange(len(LABELS)))
    assert set(LABELS[shards[6]]) == {(6 + step) % 10 for step in range(classes)}


@given(st.sampled_from(["equal", "cyclic"]), st.integers(1, 10), st.integers(0, 1000))
def test_equal_schemes_give_every_client_as_many_samples(scheme: str, classes: int, seed: int) -> None:
    settings = LabelPartition.model_validate({"classes": classes, "scheme": scheme})
    shards = shards_of(settings, 10, seed)
    sizes = [len(shard) for shard in shards]
    assert max(sizes) - min(sizes) <= classes  # one sample a label where 120 does not divide evenly


def test_a_small_concentration_is_more_skewed_than_a_large_one() -> None:
    def largest_share(concentration: float) -> float:
        shards = shards_of(DirichletPartition(concentration=concentration), 10, 2)
        return float(np.mean([np.bincount(LABELS[s]).max() / len(s) for s in shards]))

    assert largest_share(0.1) > largest_share(100)


@pytest.mark.parametrize(
    ("settings", "clients", "problem"),
    [
        (LabelPartition(classes=11), 10, "classes=11"),
        (LabelPartition(classes=1), 6, "no client would hold"),
        (LabelPartition(classes=1, scheme="equal"), 6, "no client would hold"),
        (LabelPartition(classes=3, scheme="cyclic"), 7, r"no client would hold the label\(s\) \[9\]"),
        (IidPartition(), 1201, "too few"),
        (DirichletPartition(concentration=1e-3), 200, "concentration"),
    ],
)
def test_a_partition_that_can_not_be_made_says_why(settings: Partition, clients: int, problem: str) -> None:
    with pytest.raises(gf.InputError, match=problem):
        shards_of(settings, clients, 0)


@pytest.mark.parametrize(("clients", "per_group"), [(15, [4, 4, 4, 3]), (4, [1, 1, 1, 1])])
def test_a_natural_partition_keeps_clients_within_one_group(clients: int, per_group: list[int]) -> None:
    groups = np.repeat(np.arange(4), [200, 300, 300, 400])
    shards = split(SampleFacts(LABELS, groups), clients, NaturalPartition(), np.random.default_rng(0))
    held = [np.unique(groups[shard]) for shard in shards]
    assert all(len(names) == 1 for names in held)
    np.testing.assert_array_equal(np.bincount(np.concatenate(held)), per_group)
    np.testing.assert_array_equal(np.sort(np.concatenate(shards)), np.arange(len(LABELS)))


def test_with_more_groups_than_clients_a_group_stays_together() -> None:
    groups = np.arange(1200) // 100
    shards = split(SampleFacts(LABELS, groups), 5, NaturalPartition(), np.random.default_rng(0))
    assert sum(len(np.unique(groups[shard])) for shard in shards) == 12


@pytest.mark.parametrize(
    ("facts", "settings", "missing"),
    [
        (SampleFacts(LABELS), NaturalPartition(), "natural groups"),
        (SampleFacts(sizes=LABELS), LabelPartition(), "labels"),
        (SampleFacts(sizes=LABELS), DirichletPartition(), "labels"),
    ],
)
def test_a_partition_needs_what_it_splits_by(facts: SampleFacts, settings: Partition, missing: str) -> None:
    with pytest.raises(gf.InputError, match=f"no {missing}"):
        split(facts, 5, settings, np.random.default_rng(0))


def test_contiguous_shares_are_neighbours_of_about_equal_size() -> None:
    sizes = np.random.default_rng(1).integers(1, 100, 500)
    shards = split(SampleFacts(sizes=sizes), 7, ContiguousPartition(), np.random.default_rng(0))
    np.testing.assert_array_equal(np.concatenate(shards), np.arange(500))
    share = [sizes[shard].sum() for shard in shards]
    assert max(share) - min(share) <= 2 * sizes.max()

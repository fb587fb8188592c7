"""Draws of many clients at once are those of numpy's own generators."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gammafl import seeds
from gammafl.federated.batch_draws import Streams, integers

words = st.integers(0, 2**32 - 1)


@given(seed=words, number=words, clients=st.lists(words, min_size=1, max_size=4), data=st.data())
def test_draws_of_all_are_those_of_each_generator(
    seed: int, number: int, clients: list[int], data: st.DataObject
) -> None:
    """Bounds next to powers of two are those where numpy rejects most numbers, or none."""
    beside_powers = st.builds(lambda power, step: 2**power + step, st.integers(1, 31), st.integers(-1, 1))
    below = [data.draw(beside_powers | st.integers(1, 2**32 - 1)) for _ in clients]
    streams = Streams(seed, "batches", number, clients)
    drawn = integers(streams, below, 33)
    for row, client, bound in zip(drawn, clients, below, strict=True):
        assert row.tolist() == seeds.generator(seed, "batches", number, client).integers(bound, size=33).tolist()


@pytest.mark.parametrize(("seed", "client", "below"), [(2**32, 1, 5), (0, 2**32, 5), (0, 1, 2**32 + 1)])
def test_numbers_of_more_than_a_word_are_drawn_by_numpy_itself(seed: int, client: int, below: int) -> None:
    drawn = Streams(seed, "batches", 3, [client]).integers([below], 50)
    assert drawn[0].tolist() == seeds.generator(seed, "batches", 3, client).integers(below, size=50).tolist()


def test_a_stream_is_a_fresh_generator_whenever_it_is_asked_for() -> None:
    streams = Streams(7, "batches", 1, [4, 5, 6])
    assert len(streams) == 3
    first = [rng.integers(1000) for rng in streams]
    assert first == [rng.integers(1000) for rng in streams] == integers(streams, [1000] * 3, 1)[:, 0].tolist()
    assert [rng.integers(1000) for rng in streams[1:]] == first[1:]


def test_any_generators_can_be_drawn_from() -> None:
    rngs = [np.random.default_rng(number) for number in range(3)]
    expected = [np.random.default_rng(number).integers(10 + number, size=8).tolist() for number in range(3)]
    assert integers(rngs, [10, 11, 12], 8).tolist() == expected

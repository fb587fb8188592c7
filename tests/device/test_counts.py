"""docs/devices.md says what an upload costs on a device: these are the counts behind it."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from gammafl.core.arrays import Vector
from tests.device.conftest import Place
from tests.device.counting import Counts, counted

pytestmark = pytest.mark.device
DIM, KEPT = 1 << 21, 1 << 11
PAGE = (Path(__file__).parents[2] / "docs/devices.md").read_text()


def counts(passing: str, place: Place) -> Counts:
    """Of the second upload: the first has room for more than it needs."""
    update = np.random.default_rng(0).standard_normal(DIM).astype(np.float32)
    threshold = float(np.partition(np.abs(update), DIM - KEPT - 1)[DIM - KEPT - 1])
    residual, delta = place(np.zeros(DIM, np.float32)), place(update)
    for _ in range(2):
        residual[:] = 0
        with counted() as found:
            if passing == "threshold":
                taken = residual.add_and_take_above(delta, threshold)
            else:
                taken = residual.add_and_take_largest(delta, KEPT, 5)
        assert len(taken[0]) == KEPT
    return found


def row(beginning: str) -> tuple[int, float, int]:
    """(operations, bytes for each element, synchronisations) of a row of the page's table."""
    found = re.search(rf"^\| {beginning}[^|]*\| (\d+) \| ([\d.]+)·d[^|]*\| (\d+) \|$", PAGE, re.M)
    assert found, beginning
    return int(found[1]), float(found[2]), int(found[3])


@pytest.mark.parametrize(("passing", "beginning"), [("threshold", "threshold, torch"), ("largest", "Top-k and level")])
def test_the_page_has_the_counts(passing: str, beginning: str, place: Place) -> None:
    operations, for_each, synchronisations = row(beginning)
    found = counts(passing, place)
    assert len(found.operations) == operations, found.operations
    assert len(found.crossings) == synchronisations
    sample = 4 * 6 * (1 << 16) if passing == "largest" else 0
    assert for_each * DIM <= found.moved <= for_each * DIM + 100 * KEPT + sample


def test_what_crosses_is_8_bytes_an_entry_and_room_for_a_quarter_more(place: Place) -> None:
    assert 8 * KEPT <= max(counts("threshold", place).crossings) <= 1.25 * 8 * KEPT + 1000


def test_a_part_of_a_residual_knows_how_much_room_it_needed(place: Place) -> None:
    """As where statistics are at the end of it: only the first upload has a second transfer."""
    residual, delta = place(np.zeros(10_000, np.float32)), place(np.ones(10_000, np.float32))
    crossings = []
    for _ in range(2):
        with counted() as found:
            residual[:9_000].add_and_take_above(delta[:9_000], 0.5)
        crossings.append(len(found.crossings))
    assert crossings == [2, 1]


def test_nothing_is_sorted_but_a_sample(place: Place) -> None:
    names = dict(counts("largest", place).operations)
    assert not {"kthvalue", "topk"} & names.keys()
    assert names["sort"] < DIM


def test_the_largest_magnitude_is_one_read_and_one_synchronisation(place: Place) -> None:
    vector: Vector = np.ones(DIM, np.float32)
    residual = place(vector)
    with counted() as found:
        assert residual.largest_magnitude() == 1
    assert [size for _, size in found.operations] == [pytest.approx(4 * DIM, abs=8)]
    assert len(found.crossings) == 1


def test_counts_see_what_is_moved() -> None:
    with counted() as found:
        torch.ones(1000) + torch.ones(1000)
    assert ("add", 12_000) in found.operations

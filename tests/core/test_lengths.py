"""The bound of a message's length holds for every message, and is close where positions are scattered."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gammafl as gf
from gammafl.core.interpolative import MOST_DIM
from gammafl.core.lengths import MessageForm, position_bytes
from gammafl.core.wire import PositionCoding, encode
from tests.core.test_largest import KINDS, optimiser_like


def positions(draw: st.DrawFn, dim: int, count: int) -> np.ndarray:
    """Scattered, all at one end, in steps, or in a few clusters."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["scattered", "first", "last", "steps", "clusters"]))
    if kind == "scattered":
        return np.sort(rng.choice(dim, count, replace=False))
    if kind in ("first", "last"):
        return np.arange(count) + (dim - count if kind == "last" else 0)
    if kind == "steps":
        return np.arange(count) * (dim // max(1, count))
    wide = np.unique(np.clip((rng.standard_normal(count) ** 3 * dim / 50).astype(int) + dim // 2, 0, dim - 1))
    others = np.setdiff1d(np.arange(dim), wide)
    return np.sort(np.concatenate([wide, others[len(others) - (count - len(wide)) :]]))


EVERY_ROUNDING: list[gf.Values] = [
    gf.Exact(), gf.Half(), gf.BFloat(), gf.Ternary(), gf.Bits(8), gf.Bits(4, block=1), gf.Bits(4),
    gf.Bits(2, block=300),
    gf.ByChance(), gf.ByChance(1, norm="l2"), gf.ByChance(100), gf.Rotation(), gf.Rotation("nearest"),
]  # fmt: skip


@st.composite
def messages(draw: st.DrawFn) -> tuple[MessageForm, int, gf.SparseUpdate]:
    """A form, the entries beside what is sent whole, and an update of that form."""
    dim = draw(st.integers(1, 3000))
    whole = draw(st.sampled_from([0, 0, 1, dim // 7]))
    head = dim - whole
    count = draw(st.sampled_from([0, 1, head // 100, head // 5, head // 2, head - 1, head]))
    count = min(max(count, 0), head)
    values = draw(st.sampled_from(EVERY_ROUNDING))
    parts = draw(st.integers(1, 12))
    codings: list[PositionCoding] = ["auto", "rice", "bitmap", "raw", "interpolative"]
    form = MessageForm(dim, whole, values, parts, draw(st.sampled_from(codings)))
    indices = positions(draw, head, count).astype(np.uint32)
    exact = gf.SparseUpdate(head, indices, optimiser_like(draw(st.sampled_from(KINDS)), max(1, count), dim)[:count])
    sizes = np.diff(np.linspace(0, head, parts + 1).astype(int)).tolist()
    tail = np.random.default_rng(dim).standard_normal(whole).astype(np.float32)
    return form, count, values.sent(exact, sizes, draw(st.integers(0, 9))).with_whole(tail)


@given(messages())
def test_no_message_is_longer_than_the_bound(message: tuple[MessageForm, int, gf.SparseUpdate]) -> None:
    form, count, update = message
    assert len(encode(update, form.positions)) <= form.most_bytes(count)


@given(st.one_of(st.integers(1, 2**32 - 1), st.integers(1, 2**20)), st.data())
def test_positions_that_end_anywhere_stay_within_the_bound(dim: int, data: st.DataObject) -> None:
    """Also where the last position is far from the end, and with gaps that no sample would have."""
    count = data.draw(st.integers(1, min(dim, 60)))
    places = data.draw(st.lists(st.integers(0, dim - 1), min_size=count, max_size=count, unique=True))
    update = gf.SparseUpdate(dim, np.sort(places).astype(np.uint32), np.ones(count, np.float32))
    codings: list[PositionCoding] = ["auto", "rice", "raw"]
    if dim <= MOST_DIM:
        codings.append("interpolative")
    for coding in codings:
        values = len(encode(update, "raw")) - 4 * count
        assert len(encode(update, coding)) - values <= position_bytes(dim, count, coding)


@given(st.integers(1, 10**6), st.integers(16, 10**6), st.sampled_from(EVERY_ROUNDING), st.integers(0, 9))
def test_one_entry_more_than_the_most_would_be_beyond_the_bound(
    dim: int, most: int, values: gf.Values, whole: int
) -> None:
    form = MessageForm(dim + whole, whole, values)
    count = form.most_entries(most)
    assert count == 0 or form.most_bytes(count) <= most
    assert count == dim or form.most_bytes(count + 1) > most


@pytest.mark.parametrize("count", [10, 1000, 30_000])
@pytest.mark.parametrize("values", EVERY_ROUNDING, ids=str)
def test_the_bound_is_close_for_scattered_positions(values: gf.Values, count: int) -> None:
    rng = np.random.default_rng(count)
    places = np.sort(rng.choice(10**6, count, replace=False)).astype(np.uint32)
    exact = gf.SparseUpdate(10**6, places, rng.standard_normal(count))
    message = encode(values.sent(exact, [10**6], key=0))
    assert MessageForm(10**6, values=values).most_bytes(count) <= 1.15 * len(message)

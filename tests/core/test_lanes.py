"""Sixteen numbers at a time are what they are one at a time."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numba import njit

from gammafl.core import lanes
from gammafl.core.lanes import LANES, above, pack

WORDS = hnp.arrays(np.uint32, 2 * LANES)


@njit
def all_above(bits: Any, at: int, limit: Any) -> Any:
    return above(bits, at, limit)


def packed(source: Any, at: int, wanted: int, out: Any, to: int) -> None:
    pack(source, at, wanted, out, to)


@given(WORDS, st.integers(0, LANES), st.integers(0, 2**31 - 1))
def test_a_bit_for_each_magnitude_above_the_limit(bits: np.ndarray, at: int, limit: int) -> None:
    larger = [int(word) & 0x7FFFFFFF > limit for word in bits[at : at + LANES]]
    assert all_above(bits, at, limit) == sum(bit << j for j, bit in enumerate(larger))


@pytest.mark.parametrize("in_registers", sorted({False, lanes.IN_REGISTERS}))
def test_what_is_wanted_is_put_together(in_registers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On processors and compilers that can do it at once, and on others."""
    monkeypatch.setattr(lanes, "IN_REGISTERS", in_registers)
    compiled = njit(packed)

    @given(WORDS, st.integers(0, LANES), st.integers(0, 2**LANES - 1), st.integers(0, LANES))
    def check(source: np.ndarray, at: int, wanted: int, to: int) -> None:
        out = np.zeros(2 * LANES, np.uint32)
        expected = [source[at + j] for j in range(LANES) if wanted >> j & 1]
        compiled(source, at, wanted, out, to)
        assert out[to : to + len(expected)].tolist() == expected
        assert not out[:to].any()
        assert not out[to + LANES :].any()

    check()

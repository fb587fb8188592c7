"""Work that is shared out is done once, and its results come in order."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gammafl.core import threads


@pytest.fixture(autouse=True)
def _count_restored() -> Iterator[None]:
    before = threads.count()
    yield
    threads.set_count(before)


@given(size=st.integers(0, 500), count=st.integers(1, 5), at_least=st.integers(1, 200), block=st.integers(1, 70))
def test_parts_cover_everything_once_in_order_and_begin_at_blocks(
    size: int, count: int, at_least: int, block: int
) -> None:
    threads.set_count(count)
    parts = threads.share_out(lambda start, stop: (start, stop), size, at_least, block)
    assert [i for start, stop in parts for i in range(start, stop)] == list(range(size))
    assert all(start % block == 0 for start, _ in parts)
    assert len(parts) <= count


def test_an_error_in_another_thread_reaches_the_caller() -> None:
    def fail(start: int, stop: int) -> None:
        if start > 0:
            raise ValueError("in the second part")

    threads.set_count(2)
    with pytest.raises(ValueError, match="second part"):
        threads.share_out(fail, 10)

"""The checksum is zlib's, however many threads add it up."""

import zlib

import numpy as np
import pytest

from gammafl.core import threads
from gammafl.core.checksum import PART_AT_LEAST, crc32


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("size", [0, 1, 100, 2 * PART_AT_LEAST - 1, 2 * PART_AT_LEAST, 5 * PART_AT_LEAST + 3])
def test_parts_have_the_checksum_of_the_whole(size: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_count", count)
    data = np.random.default_rng(size).bytes(size)
    for before in (0, 1, 0x12345678, 0xFFFFFFFF):
        assert crc32(data, before) == zlib.crc32(data, before)

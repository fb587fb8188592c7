"""What all tests of tasks share."""

from collections.abc import Iterator

import pytest
import torch

from gammafl.core import threads


@pytest.fixture(autouse=True)
def _threads_restored() -> Iterator[None]:
    before, of_torch = threads.count(), torch.get_num_threads()
    yield
    threads.set_count(before)
    torch.set_num_threads(of_torch)

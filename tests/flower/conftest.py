"""What the server counted."""

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from gammafl.core.arrays import Vector
from gammafl.flower.inbox import Inbox


@pytest.fixture
def applied(monkeypatch: pytest.MonkeyPatch) -> dict[str, Vector]:
    """Client → the sum of its updates that the server counted."""
    sums: dict[str, Vector] = defaultdict(lambda: np.zeros(50, np.float64))
    confirm = Inbox.confirm

    def confirm_and_add(inbox: Inbox, letters: Any) -> None:
        for letter in letters:
            sums[inbox.label(letter)] += letter.update.dense()
        confirm(inbox, letters)

    monkeypatch.setattr(Inbox, "confirm", confirm_and_add)
    return sums

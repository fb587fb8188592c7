"""What the server counted."""

import gc
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gammafl.core.arrays import Vector
from gammafl.federated.server_exchange import ServerExchange


@pytest.fixture
def applied(monkeypatch: pytest.MonkeyPatch) -> dict[str, Vector]:
    """Client → the sum of its updates that the server counted."""
    sums: dict[str, Any] = defaultdict(float)
    close = ServerExchange.close

    def close_and_add(exchange: ServerExchange, counted: Any) -> list[str]:
        for arrival in counted:
            sums[exchange.label(arrival)] += arrival.update.dense().astype(np.float64)
        return close(exchange, counted)

    monkeypatch.setattr(ServerExchange, "close", close_and_add)
    return sums


@pytest.fixture(autouse=True)
def cheap_collections() -> Iterator[None]:
    """Flower's strategies call gc.collect() for every reply: it is not to go through all that was loaded before."""
    gc.freeze()
    yield
    gc.unfreeze()

"""What a server announces is compared with what it sent before anything is made of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp.strategy import FedAvg

import gammafl.flower
from tests.flower.grid import InProcessGrid, state_files
from tests.flower.test_strategies import DIM, app_with, record_of

FORGED: dict[str, tuple[dict[str, Any], str]] = {
    "a large model that is not there": ({"dim": 10**8}, f"the model has {DIM} elements, 100000000 were announced"),
    "tied tensors that are no pairs": ({"tied": ["a.weight"]}, "in pairs"),
    "changes that are not there": ({"base": 0}, "sent ['a.weight', 'a.bias']"),
}


@pytest.mark.parametrize("kind", FORGED)
def test_a_forged_offer_gets_an_error_in_words_and_the_state_stays(kind: str, tmp_path: Path) -> None:
    forged, words = FORGED[kind]
    app = app_with([gammafl.flower.compress(tmp_path)])
    grid = InProcessGrid(app, 2)
    chosen = gammafl.flower.Compressed(FedAvg(fraction_evaluate=0.0), method="top-k", keep=0.1, downlink="changes")
    chosen.start(grid, record_of(np.zeros(DIM, np.float32)), 1)
    before = {path: path.read_bytes() for path in state_files(tmp_path)}
    first = next(message for message in grid.sent if message.metadata.dst_node_id == 100)
    terms = {**first.content.config_records["gammafl"], "round": 2, **forged}
    content = RecordDict({**first.content, "gammafl": ConfigRecord(terms)})
    reply = app(Message(content, 100, "train"), Context(1, 100, {"partition-id": 0}, RecordDict(), {}))
    assert reply.has_error()
    assert words in str(reply.error.reason)
    assert {path: path.read_bytes() for path in state_files(tmp_path)} == before

"""With changes only on the way down, a client trains on the server's model all the same."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import gammafl as gf
import gammafl.flower
from gammafl.core.arrays import Vector
from gammafl.federated.client import start_after_loss
from gammafl.files import tensor_files
from tests.flower.grid import InProcessGrid
from tests.flower.problem import from_record, quadratic_app, strategy, to_record
from tests.problems import METHODS, Quadratic

every_method = pytest.mark.parametrize("name", METHODS)


def test_tensors_of_half_precision_end_the_same_whichever_way_the_model_comes_down(tmp_path: Path) -> None:
    """What the server adds to them is finer than they are: a client must not take their rounding for its own update."""

    def trained(downlink: str) -> Vector:
        app = ClientApp(mods=[gammafl.flower.compress(tmp_path / downlink)])

        @app.train()
        def train(message: Message, context: Context) -> Message:
            before = message.content.array_records["arrays"]["w"].numpy()
            number = int(message.content.config_records["config"]["server-round"])  # type: ignore[arg-type]
            step = np.random.default_rng(number).choice([0, 2**-9], before.size).astype(np.float16)
            arrays = ArrayRecord({"w": Array(before - step)})
            content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": context.node_id % 3 + 1})})
            return Message(content, reply_to=message)

        chosen = strategy(method=gf.Dense(), downlink=downlink)
        result = chosen.start(InProcessGrid(app, 4), ArrayRecord({"w": Array(np.ones(20, np.float16))}), 6)
        assert result.arrays["w"].dtype == "float16"
        return result.arrays["w"].numpy()

    assert (trained("full") != 1).any()
    np.testing.assert_array_equal(trained("changes"), trained("full"))


@every_method
def test_with_changes_only_every_client_trains_on_the_servers_model(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Through lost replies, restarts and lost disks, the model that a client gets is the server's bit for bit; after a
    lost upload, it is the server's with that upload in it."""
    chance, task = random.Random(1), Quadratic()
    chosen = strategy(method=METHODS[name], downlink="changes", fraction_evaluate=1.0)
    seen = []

    def look(message: Message, context: Context, call_next: Any) -> Message:
        assert chosen.training.last is not None
        model = chosen.training.last.vector
        starts = [model]
        for path in tmp_path.glob(f"training-*/{context.node_config['partition-id']}.state"):
            if "open" in (tensors := tensor_files.read(path)[1]):
                starts.append(start_after_loss(model, gf.decode(tensors["open"].tobytes())))
        got = from_record(message.content.array_records["arrays"]).tobytes()
        seen.append(got in [start.tobytes() for start in starts])
        return call_next(message, context)

    grid = InProcessGrid(quadratic_app(task, tmp_path, [look]), 4)

    def fate(message: Message, reply: Message) -> Message | None:
        throw = chance.random()
        if throw < 0.1:
            grid.restart(message.metadata.dst_node_id, chance.randrange(1000, 10**6))
        if throw > 0.9:
            for path in tmp_path.rglob("*.model"):
                path.unlink()
        return reply if throw > 0.2 else None

    grid.fate = fate
    chosen.start(grid, to_record(task, np.zeros(50, np.float32)), 30)
    assert all(seen)
    assert len(seen) > 60
    assert "asks for a whole one" in caplog.text
    assert any(record["without_model"] for record in chosen.history)

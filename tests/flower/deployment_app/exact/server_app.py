"""Writes down each upload that counts, and the model at the end."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord
from flwr.serverapp import Grid, ServerApp

import gammafl as gf
import gammafl.flower
from gammafl.flower.messages import Answer

DIM = 200

app = ServerApp()


class Recorded(gammafl.flower.CompressedFedAvg):
    directory: Path

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = list(replies)
        uploads = {}
        for reply in replies:
            answer = Answer.read(reply.content) if reply.has_content() else None
            if answer is not None:
                payload = reply.content["arrays"]["update"].data  # type: ignore[union-attr]
                uploads[answer.name] = (answer.number, payload)
        result = super().aggregate_train(server_round, replies)
        for name in self.history[-1]["clients"]:
            number, payload = uploads[name]
            (self.directory / f"accepted-{server_round}-{name}-{number}").write_bytes(payload)
        return result


@app.main()
def main(grid: Grid, context: Context) -> None:
    settings = context.run_config
    strategy = Recorded(method=gf.TopK(20), fraction_evaluate=0.0, min_train_nodes=2, min_available_nodes=2)
    strategy.directory = Path(str(settings["directory"]))
    result = strategy.start(
        grid,
        ArrayRecord({"model": Array(np.zeros(DIM, np.float32))}),
        num_rounds=int(settings["num-server-rounds"]),
        timeout=float(settings["round-seconds"]),
    )
    np.save(strategy.directory / "model.npy", result.arrays["model"].numpy())

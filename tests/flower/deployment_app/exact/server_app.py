"""Writes down each upload that counts, and the model at the end."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import gammafl as gf
import gammafl.flower
from gammafl.federated.server_exchange import Arrival, ServerExchange

DIM = 200

app = ServerApp()


def write_down(directory: Path) -> None:
    """Each upload that counts goes into a file."""
    close = ServerExchange.close

    def close_and_write(exchange: ServerExchange, counted: Sequence[Arrival]) -> list[str]:
        for arrival in counted:
            name = f"accepted-{arrival.answer.round}-{exchange.label(arrival)}-{arrival.answer.number}"
            (directory / name).write_bytes(arrival.payload)
        return close(exchange, counted)

    ServerExchange.close = close_and_write  # type: ignore[assignment, method-assign]


@app.main()
def main(grid: Grid, context: Context) -> None:
    settings = context.run_config
    directory = Path(str(settings["directory"]))
    write_down(directory)
    inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=2, min_available_nodes=2)
    strategy = gammafl.flower.Compressed(inner, method=gf.TopK(20), checkpoint=str(settings["checkpoint"]) or None)
    result = strategy.start(
        grid,
        ArrayRecord({"model": Array(np.zeros(DIM, np.float32))}),
        num_rounds=int(settings["num-server-rounds"]),
        timeout=float(settings["round-seconds"]),
    )
    np.save(directory / "model.npy", result.arrays["model"].numpy())

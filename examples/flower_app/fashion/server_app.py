"""The server: an ordinary ServerApp, and line two."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import gammafl.flower
from fashion.records import Records
from fashion.task import Net, accuracy, load_test

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    settings = context.run_config
    records = Records(settings["out"])
    nodes = settings["min-nodes"]
    options = {"fraction_evaluate": 0.0, "min_train_nodes": nodes, "min_available_nodes": nodes}
    strategy = FedAvg(**options)
    if settings["compress"]:
        terms = {"method": settings["method"], "keep": settings["keep"], "downlink": settings["downlink"]}
        strategy = gammafl.flower.Compressed(strategy, **terms, ledger=records.ledger)  # ← line two

    test, model = load_test(settings["dataset"]), Net()

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        with records.apart():
            model.load_state_dict(arrays.to_torch_state_dict())
            reached = accuracy(model, test)
        records.write(round=server_round, accuracy=reached)
        return MetricRecord({"accuracy": reached})

    torch.manual_seed(0)
    strategy.start(
        records.counting(grid, settings["poll-seconds"]),
        ArrayRecord(Net().state_dict()),
        num_rounds=settings["num-server-rounds"],
        timeout=settings["round-seconds"],
        train_config=ConfigRecord({"lr": settings["learning-rate"]}),
        evaluate_fn=evaluate,
    )

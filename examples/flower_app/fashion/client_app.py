"""The client: an ordinary ClientApp, and line one."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import gammafl.flower
from fashion.switch import if_compressing
from fashion.task import Net, load_partition, train

app = ClientApp(mods=[if_compressing(gammafl.flower.compress())])  # ← line one; in your app without `if_compressing`


@app.train()
def train_round(message: Message, context: Context) -> Message:
    """As in any Flower app: a model in, a trained model out."""
    node, settings = context.node_config, context.run_config
    model = Net()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    data = load_partition(settings["dataset"], node["partition-id"], node["num-partitions"])
    lr = message.content["config"]["lr"]
    loss = train(model, data, settings["local-epochs"], settings["batch-size"], lr)
    content = RecordDict(
        {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"train_loss": loss, "num-examples": len(data)}),
        }
    )
    return Message(content, reply_to=message)

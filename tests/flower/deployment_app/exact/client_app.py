"""Clients whose updates are multiples of 1/64, and that die where dying is most awkward."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import gammafl.flower

AFTER_STORING = (0, 2)
"""(Partition, round): killed when the upload is stored and before it leaves."""

ON_RECEIPT = (1, 2)
"""Killed between two uploads: the message has come, nothing is done with it."""


def killer(message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
    """Outside of gammafl's mod: what it does happens after the state is stored."""
    if "arrays" not in message.content:  # the end of the training: the state stays, to be looked at
        return Message(RecordDict(), reply_to=message)
    directory = Path(str(context.run_config["directory"]))
    now = (int(context.node_config["partition-id"]), int(message.content["config"]["server-round"]))  # type: ignore[arg-type]
    dies = bool(context.run_config["dies"])
    if dies and now == ON_RECEIPT:
        die_once(directory / "killed-on-receipt")
    reply = call_next(message, context)
    if dies and now == AFTER_STORING:
        die_once(directory / "killed-after-storing")
    return reply


def die_once(marker: Path) -> None:
    """SIGKILL to this process and the SuperNode, which are of one process group."""
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return
    os.killpg(0, signal.SIGKILL)


app = ClientApp(mods=[killer, gammafl.flower.compress()])


@app.train()
def train(message: Message, context: Context) -> Message:
    """A random step, written down; `repeatable`: a function of client and round."""
    model = message.content["arrays"]["model"].numpy()  # type: ignore[union-attr]
    partition, number = context.node_config["partition-id"], message.content["config"]["server-round"]
    seed = [int(partition), int(number)] if context.run_config["repeatable"] else None  # type: ignore[arg-type]
    delta = (np.random.default_rng(seed).integers(-512, 513, model.size) / 64).astype(np.float32)
    with (Path(str(context.run_config["directory"])) / f"computed-{partition}").open("ab") as file:
        file.write(delta.tobytes())
    content = RecordDict(
        {"arrays": ArrayRecord({"model": Array(model - delta)}), "metrics": MetricRecord({"num-examples": 1})}
    )
    return Message(content, reply_to=message)

"""Adds an offer to the strategy's messages, and sends the model in the types of the app's first model."""

import json
import logging
import math
from collections.abc import Callable, Collection
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict

from gammafl.core.errors import InputError, require
from gammafl.core.stepsizes import Constant
from gammafl.flower.layout import Layout, tied_tensors
from gammafl.flower.messages import KEY, Notice, Offer, kind_of, message_like
from gammafl.flower.training import Base, Training

LOG = logging.getLogger("flwr")

Nodes = Callable[[], Collection[int]]
"""A function that returns the nodes that are connected now."""


class Outgoing:
    """Writes the messages of one training. `initial` is the app's first model, if it is known."""

    def __init__(self, training: Training, initial: ArrayRecord | None = None) -> None:
        self.training = training
        self.initial = initial or ArrayRecord()
        self.asked: int | None = None
        """How many clients are asked to train in one round."""

    def write(self, message: Message, connected: Nodes, seconds: float | None) -> Message:
        """A copy of `message` with an offer. The strategy's message does not change: it may share its records.

        seconds   how long the message is valid, since nobody waits longer for the answer
        """
        kind, node = kind_of(message), message.metadata.dst_node_id
        content = RecordDict(dict(message.content))
        if kind == MessageType.TRAIN:
            self._write_train(content, node, connected)
        elif kind == MessageType.EVALUATE and self.training.begun:
            self._write_evaluate(content, node)
        return message_like(message, content, seconds)

    def _write_train(self, content: RecordDict, node: int, connected: Nodes) -> None:
        training = self.training
        key = training.model_key(content)
        if key is None:  # nothing to compress
            return Notice(notice="off").write(content)
        if not training.begun:
            self._begin(content.array_records[key], content)
        base = training.base(content.array_records[key], key)
        require(node not in training.open.bases, f"the strategy sent node {node} two models to train in one round")
        if any(other is not base for other in training.open.bases.values()):
            training.note_several()
        training.open.bases[node] = base
        self._write_rate(content)
        known = training.exchange.receipts.receipt(node) is not None
        offer = training.exchange.offer(node, None if known else connected())
        self._write_model(content, base, node, offer.model_dump())
        training.open.downlink_bytes += size_of(content.array_records[key])
        return None

    def _write_evaluate(self, content: RecordDict, node: int) -> None:
        training = self.training
        key = training.model_key(content)
        if key is None or not content.array_records[key].keys() <= set(training.layout.names):
            return
        base = training.base(content.array_records[key], key, leads=not training.has_view)
        if training.terms.downlink == "full":
            content[key] = base.sent
        else:
            self._write_model(content, base, node, training.exchange.offer(node, asks=False).model_dump())
        training.open.evaluation_bytes += size_of(content.array_records[key])

    def _write_model(self, content: RecordDict, base: Base, node: int, offer: dict[str, Any]) -> None:
        """Writes what the downlink sends; or the strategy's model, if it is a part or differs between nodes."""
        training, layout = self.training, self.training.layout
        whole = training.is_whole(base)
        stores = whole and base is training.last and (training.has_view or training.terms.downlink == "changes")
        if stores:
            training.down.show(base.record, base.vector, base.sent)
        content[base.key], version = training.down.sent(node) if stores else (base.sent, None)
        Offer(
            **offer,
            arrays=base.key,
            whole=list(training.terms.whole),
            tied=[name for pair in layout.tied.items() for name in pair] or None,
            tensors=None if whole else json.dumps(layout.facts()),
            replies=training.terms.replies,
            simulated=training.terms.simulated,
            resumes=training.terms.resumes,
            version=training.down.version,
            base=version,
            stores=stores,
        ).write(content)

    def _begin(self, record: ArrayRecord, content: RecordDict) -> None:
        """Takes the layout from the first model that is sent, with the types of the app's first model."""
        terms = self.training.terms
        began = ArrayRecord({name: self.initial.get(name, array) for name, array in record.items()})
        layout = Layout.of(began, terms.whole, tied_tensors(began) if terms.tied else {})
        stepsize = Constant(self._rate(content)) if terms.stepsize is None else terms.stepsize
        self.training.begin(layout, stepsize, self.asked)

    def _rate(self, content: RecordDict) -> float:
        """The learning rate in the train config. If there is none: 1, and a line in the log."""
        key = self.training.terms.lr_key
        rates = [record[key] for record in content.config_records.values() if key in record]
        if not rates:
            LOG.info(
                "gammafl: the train config has no %r: methods assume a constant learning rate. If it changes, give"
                " it to Compressed(stepsize=…)",
                key,
            )
            return 1.0
        rate = rates[0]
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < math.inf:
            raise InputError(f"train_config[{key!r}] must be a positive number, found {rate!r}; or name another lr_key")
        return float(rate)

    def _write_rate(self, content: RecordDict) -> None:
        """Writes γ_t at the round's first iteration into the train config, if the server knows it."""
        terms = self.training.terms
        if terms.stepsize is None:
            return
        keys = [key for key in content.config_records if key != KEY] or ["config"]
        config = ConfigRecord(dict(content.config_records.get(keys[0], {})))
        config[terms.lr_key] = float(terms.stepsize(self.training.exchange.round * terms.local_steps))
        content[keys[0]] = config


def size_of(record: ArrayRecord) -> int:
    """The bytes of the arrays of `record`."""
    return sum(len(array.data) for array in record.values())

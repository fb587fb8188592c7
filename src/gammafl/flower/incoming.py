"""Turns uploads into the replies that the strategy expects: b − Δ̂ in float32, for the model b that it sent.

Each reply is checked alone: a bad one loses its sender's upload, and nothing else. Tensors are computed when they are
read, so that many replies of a large model need little memory.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MessageType, RecordDict
from numpy.typing import NDArray

from gammafl.core.arrays import Vector
from gammafl.core.errors import GammaflError, InputError, require
from gammafl.core.sparse import SparseUpdate
from gammafl.federated.limits import Limits
from gammafl.federated.server_exchange import weight_within
from gammafl.flower.arrays import LazyArray, floats_in
from gammafl.flower.grid import Reply
from gammafl.flower.messages import KEY, STYPE, UPDATE, Answer, Holding, from_mask
from gammafl.flower.metrics import alike, form_of, only_metrics, printable, usual_form
from gammafl.flower.training import Base, Training, require_finite

LOG = logging.getLogger("flwr")

NO_MOD = (
    "it sent a whole model: add gammafl.flower.compress() as the first of its ClientApp's mods, or let whole"
    " models count with Compressed(accept_whole=True)"
)


class Incoming:
    """Reads the replies of one training."""

    def __init__(self, training: Training) -> None:
        self.training = training
        self._warned_of_arrays = False

    def read(self, replies: Iterable[Reply]) -> list[Message]:
        """The replies for the strategy, in the order of the nodes' ids. Refused replies are left out."""
        kinds: dict[str, list[Message]] = defaultdict(list)
        for kind, reply in sorted(replies, key=lambda reply: reply[1].metadata.src_node_id):
            kinds[kind].append(reply)
        trained = self._read_trained(kinds.pop(MessageType.TRAIN, []))
        evaluated = self._read_evaluated(kinds.pop(MessageType.EVALUATE, []))
        return [*trained, *evaluated, *chain.from_iterable(kinds.values())]

    def _read_trained(self, replies: list[Message]) -> list[Message]:
        opened, passed = self.training.open, []
        models: dict[int, Message] = {}
        for reply in replies:
            node = reply.metadata.src_node_id
            if node not in opened.bases:  # this round sent it no model
                if reply.has_content() and KEY in reply.content:
                    self._refuse(node, "an answer to a round that is over")
                else:
                    passed.append(reply)
                continue
            opened.read = True
            if reply.has_error():
                opened.failed[node] = printable(reply.error.reason or f"error {reply.error.code}")
                passed.append(reply)
                continue
            try:
                if self._take(node, reply):
                    models[node] = reply
            except GammaflError as error:
                self._refuse(node, str(error))
        self._refuse_copies(models)
        self._refuse_outliers(models)
        self._refuse_odd_ones(models)
        self._refuse_traps(models)
        return passed + list(models.values())

    def _read_evaluated(self, replies: list[Message]) -> list[Message]:
        """The replies to an evaluation. Flower's strategies get only those that they can average.

        The others would end the run. A strategy that is not Flower's gets all replies.
        """
        replies = [reply for reply in replies if not self._without_model(reply)]
        self._warn_of_arrays(replies)
        key = self.training.terms.weight_key
        if key is None:
            return replies
        failed = [reply for reply in replies if reply.has_error()]
        return failed + alike((r for r in replies if not r.has_error() and r.content.metric_records), key)

    def _warn_of_arrays(self, replies: Sequence[Message]) -> None:
        """Warns once if evaluate functions return arrays: that costs bytes, and nobody reads them."""
        records = [r for m in replies if m.has_content() for r in m.content.array_records.values()]
        size = sum(len(array.data) for record in records for array in record.values())
        if size and not self._warned_of_arrays:
            self._warned_of_arrays = True
            LOG.warning(
                "gammafl: the evaluate function returns arrays, %d bytes in %d replies. They are not compressed, and"
                " Flower's strategies do not read them: return the metrics alone",
                size,
                len(replies),
            )

    def _refuse(self, node: int, reason: str) -> None:
        """Notes the refusal. An earlier valid upload of the node in this round still counts."""
        self.training.open.refused[node] = printable(reason)
        LOG.warning("gammafl: upload of node %d refused: %s", node, printable(reason))

    def _refuse_copies(self, models: dict[int, Message]) -> None:
        """If several nodes have a copy of one client's state, only one upload counts."""
        if models:
            for address, reason in self.training.exchange.settle_contests().items():
                self._refuse(int(address), reason)
                models.pop(int(address), None)

    def _refuse_outliers(self, models: dict[int, Message]) -> None:
        """Refuses uploads far larger than all others, while no bound is learnt from earlier rounds.

        Uploads that the strategy already has are not checked again.
        """
        if models:
            for address, reason in self.training.exchange.outliers().items():
                if models.pop(int(address), None) is not None:
                    self._refuse(int(address), reason)
                    self.training.exchange.refuse(address)
                    self.training.open.partial.discard(int(address))

    def _refuse_odd_ones(self, models: dict[int, Message]) -> None:
        """Refuses replies whose names of tensors or metrics differ from those of most others.

        Flower's own strategies would end the run. FedAvg over sparse updates does not need equal names of metrics;
        FedAvg over models does.
        """
        opened, terms = self.training.open, self.training.terms
        if not terms.alike or terms.privacy is not None:  # the majority depends on each client
            return
        self._refuse_other(models, _tensor_names, "its tensors have other names than those of most other clients")
        if not terms.plain or opened.whole or opened.partial:
            self._refuse_other(models, _metric_names, "its metrics have other names than those of most other clients")

    def _refuse_other(self, models: dict[int, Message], form_of_reply: Callable[[RecordDict], Any], why: str) -> None:
        """Refuses replies whose form differs from that of most replies."""
        forms = {node: form_of_reply(reply.content) for node, reply in models.items()}
        usual = usual_form(forms.values())
        for node, form in forms.items():
            if form != usual:
                self._refuse_model(models, node, why)

    def _refuse_traps(self, models: dict[int, Message]) -> None:
        """Refuses replies with which the strategy, one of Flower's, would divide by zero or make a model of NaN."""
        for node in list(models):
            if reason := self.training.terms.trap(models[node].content, self.training.open.bases[node].record):
                self._refuse_model(models, node, reason)

    def _refuse_model(self, models: dict[int, Message], node: int, reason: str) -> None:
        """Refuses a reply of `models` that was accepted before."""
        self._refuse(node, reason)
        self.training.exchange.refuse(node)
        self.training.open.partial.discard(node)
        self.training.open.whole.pop(node, None)
        del models[node]

    def _take(self, node: int, reply: Message) -> bool:
        """Replaces the upload in a reply by the model. False if the strategy gets no reply from this one."""
        training, content = self.training, reply.content
        base = training.open.bases[node]
        answer = Answer.read(content)
        if answer is None:
            require(training.terms.accept_whole, NO_MOD)
            self._take_whole(node, content)
            return True
        self._note_holding(node, answer)
        if answer.wants_full:
            training.exchange.meet(node, answer)
            training.open.without_model.append(node)
            return False
        key, payload = _upload(content)
        weight = self._weight(content)
        names = list(base.record) if answer.returned is None else from_mask(answer.returned, training.layout.names)
        require(bool(names) and set(names) <= base.record.keys(), "it returns tensors that the server did not send")
        part = set(names) != base.record.keys()
        require(
            not (part and training.exchange.method.memory.commits),
            "it returns a part of the tensors, but this method's memory needs all of them",
        )
        arrival = training.exchange.accept(node, answer, payload, weight)
        if arrival is None:
            training.open.repeated.append(node)
            return False
        if part:
            training.open.partial.add(node)
        training.open.other_bytes += sum(
            len(array.data)
            for other, record in content.array_records.items()
            if other != key
            for array in record.values()
        )
        reply.content = RecordDict({other: record for other, record in content.items() if other != KEY})
        reply.content[key] = self._trained(base, training.exchange.update_of(arrival), names)
        return True

    def _weight(self, content: RecordDict) -> float:
        key = self.training.terms.weight_key
        if key is None:
            return 1.0
        return weight_within(only_metrics(content).get(key), self.training.terms.limits, f"its metric {key!r}")

    def _take_whole(self, node: int, content: RecordDict) -> None:
        """Accepts a whole model, after checks of its tensors, its values and its norm."""
        self._weight(content)
        key = self.training.model_key(content) or ""
        record = content.array_records.get(key)
        if not record:
            raise InputError("its reply holds no model")
        self.training.layout.check(record, "its model")
        model = self.training.layout.flatten(record, "its model", record.keys())
        require_finite(model, "its model", self.training.terms.largest_update)
        self._require_within(node, record, model)
        self.training.open.whole[node] = sum(len(array.data) for array in record.values())
        names = self.training.open.bases[node].record  # some strategies go by the order of tensors
        content[key] = ArrayRecord({name: record[name] for name in names if name in record})

    def _require_within(self, node: int, record: ArrayRecord, model: Vector) -> None:
        """Applies the limit of the norm to a whole model. Otherwise a client could escape it without the mod."""
        exchange, layout = self.training.exchange, self.training.layout
        if (norm := exchange.norms.within(exchange.limits).norm) is None:
            return
        change = np.zeros(layout.dim, np.float32)
        for place in (layout.places[name] for name in record if name in layout.places):
            change[place] = self.training.open.bases[node].vector[place] - model[place]
        Limits(norm=norm).check_update(SparseUpdate(layout.dim, None, change))

    def _trained(self, base: Base, update: SparseUpdate, names: Sequence[str]) -> ArrayRecord:
        """b − Δ̂. Each tensor is computed when it is read; tensors of whole numbers are the strategy's own."""
        layout = self.training.layout
        record = ArrayRecord()  # filled one by one: ArrayRecord(dict) would read all tensors
        for name in names:
            if name in layout.fixed:
                record[name] = base.record[name]
            else:
                record[name] = LazyArray(layout.shape(name), self._maker(base, update, name))
        return record

    def _maker(self, base: Base, update: SparseUpdate, name: str) -> Callable[[], NDArray[np.float32]]:
        layout = self.training.layout
        place, shape, tied = layout.places[name], layout.shape(name), name in layout.tied
        change = self.training.terms.replies == "update"

        def make() -> NDArray[np.float32]:
            if change:  # the strategy wants −Δ̂ alone
                part = np.zeros(place.stop - place.start, np.float32)
            elif tied:  # the strategy may have made them differ, such as by noise
                part = np.array(floats_in(base.record[name]), np.float32).reshape(-1)
            else:
                part = base.vector[place].copy()
            if update.entire:
                part -= update.values[place]
            else:
                first, last = np.searchsorted(update.indices, [place.start, place.stop])
                part[update.indices[first:last] - np.uint32(place.start)] -= update.values[first:last]
            return part.reshape(shape)

        return make

    def _without_model(self, reply: Message) -> bool:
        """Whether a client had no model to evaluate. Notes which version it has stored.

        Removes gammafl's record from the reply, since the app does not expect it.
        """
        if reply.has_error() or not self.training.begun:
            return False
        try:
            answer = Holding.read(reply.content)
        except GammaflError:
            return False
        if answer is None:
            return False
        self._note_holding(reply.metadata.src_node_id, answer)
        del reply.content[KEY]
        return answer.wants_full

    def _note_holding(self, node: int, answer: Holding) -> None:
        if answer.wants_full:
            self.training.down.forget(node)
        elif answer.holds is not None:
            self.training.down.holds(node, answer.holds)


def _upload(content: RecordDict) -> tuple[str, bytes]:
    """The upload in a reply, with the key of its record before it."""
    for key, record in content.array_records.items():
        if list(record) == [UPDATE] and record[UPDATE].stype == STYPE:
            return key, record[UPDATE].data
    raise InputError(NO_MOD)


def _tensor_names(content: RecordDict) -> Any:
    return frozenset((key, frozenset(record)) for key, record in content.array_records.items())


def _metric_names(content: RecordDict) -> Any:
    return frozenset((key, form_of(record)) for key, record in content.metric_records.items())

"""The server's inbox: each reply is looked at on its own, so that a bad one costs its sender's upload and no more."""

import logging
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from flwr.app import Message, MetricRecord, RecordDict

from gammafl.core.errors import InputError
from gammafl.core.sparse import SparseUpdate
from gammafl.federated import server
from gammafl.federated.client import Upload
from gammafl.federated.receipts import Receipts, Sender
from gammafl.federated.server import Limits
from gammafl.runtimes.flower.terms import STYPE, UPDATE, Answer

LOG = logging.getLogger("flwr")

NO_MOD = "it sent a whole model: add gammafl.flower.compress() to the mods of its ClientApp"


@dataclass(frozen=True)
class Letter:
    """A good upload: who sent it, what it says, and what it weighs."""

    answer: Answer
    upload: Upload
    update: SparseUpdate
    weight: float
    content: RecordDict
    """Its metrics alone."""


@dataclass
class Mail:
    """The replies of a round, sorted."""

    letters: list[Letter] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)
    repeated: list[int] = field(default_factory=list)
    """Nodes that sent an upload again which had arrived: neither counted nor wrong."""

    without_model: list[int] = field(default_factory=list)
    """Nodes that could not train, since they have lost the version that changes were sent for."""

    holding: dict[int, int | None] = field(default_factory=dict)
    """Node → the version of the model that it has stored."""


class Inbox:
    """Receives for a model of `dim` elements; `weight_key` is the metric that an upload is weighted by."""

    def __init__(self, dim: int, limits: Limits, weight_key: str) -> None:
        self.dim = dim
        self.limits = limits
        self.weight_key = weight_key
        self.receipts = Receipts()

    def sort(self, replies: Iterable[Message], round_number: int) -> Mail:
        """In the order of the nodes' ids, whichever came first."""
        mail = Mail()
        for reply in sorted(replies, key=lambda reply: reply.metadata.src_node_id):
            node = reply.metadata.src_node_id
            try:
                self._sort_one(node, reply.content, round_number, mail)
            except InputError as error:
                mail.refused[node] = str(error)
        _refuse_doubles(mail)
        _refuse_odd_metrics(mail)
        for node, reason in mail.refused.items():
            LOG.warning("gammafl: upload of node %d refused: %s", node, reason)
        return mail

    def _sort_one(self, node: int, content: RecordDict, round_number: int, mail: Mail) -> None:
        answer = Answer.read(content)
        if answer is None:
            raise InputError(NO_MOD)
        if answer.round != round_number:
            raise InputError(f"an answer to round {answer.round} in round {round_number}")
        if warning := self.receipts.met(node, answer.who):
            LOG.warning("gammafl: %s", warning)
        mail.holding[node] = answer.holds
        if answer.wants_full:
            mail.without_model.append(node)
            return
        if refusal := self.receipts.refusal(answer.who, answer.number):
            if not answer.again:
                raise InputError(refusal)
            mail.repeated.append(node)
            return
        mail.letters.append(self._letter(node, answer, content))

    def _letter(self, node: int, answer: Answer, content: RecordDict) -> Letter:
        key, metrics = _only_metrics(content)
        weight = metrics.get(self.weight_key)
        if not isinstance(weight, int | float) or not 0 < weight < math.inf:
            raise InputError(f"its metric {self.weight_key!r} must be a positive number, found {weight!r}")
        if self.limits.weight is not None and weight > self.limits.weight:
            raise InputError(f"its metric {self.weight_key!r} is {weight}, where {self.limits.weight} is allowed")
        upload = Upload(node, _payload(content), 0.0)
        accepted, refused = server.receive([upload], self.dim, self.limits)
        if refused:
            raise InputError(refused[node])
        return Letter(answer, upload, accepted[0][1], float(weight), RecordDict({key: metrics}))

    def confirm(self, letters: Sequence[Letter]) -> None:
        """They are in the model: the next broadcast tells their senders."""
        for letter in letters:
            self.receipts.accept(letter.answer.who, letter.answer.number)


def usable(contents: Iterable[RecordDict], weight_key: str) -> list[RecordDict]:
    """Those with one record of metrics, with a weight, and of the form that most have."""
    found = []
    for content in contents:
        try:
            _, metrics = _only_metrics(content)
        except InputError:
            continue
        if isinstance(metrics.get(weight_key), int | float):
            found.append((_form(content), content))
    usual = _usual(form for form, _ in found)
    return [content for form, content in found if form == usual]


def _refuse_doubles(mail: Mail) -> None:
    """Of several uploads of one sender only the last counts, which holds whatever was not confirmed of the others."""
    last: dict[Sender, Letter] = {}
    for letter in mail.letters:
        before = last.setdefault(letter.answer.who, letter)
        if letter.answer.number > before.answer.number:
            last[letter.answer.who] = letter
    for letter in mail.letters:
        if letter is not last[letter.answer.who]:
            mail.refused[letter.upload.client] = (
                f"client {letter.answer.name} answered twice: is its partition-id used for two SuperNodes?"
            )
    mail.letters = list(last.values())


def _refuse_odd_metrics(mail: Mail) -> None:
    """Metrics are averaged by name: whoever sends others than most is refused."""
    usual = _usual(_form(letter.content) for letter in mail.letters)
    for letter in mail.letters:
        if (form := _form(letter.content)) != usual:
            mail.refused[letter.upload.client] = f"its metrics are {_words(form)}, those of the others {_words(usual)}"
    mail.letters = [letter for letter in mail.letters if _form(letter.content) == usual]


Form = frozenset[tuple[str, int]]
"""Name and length of each metric, 0 for a number."""


def _form(content: RecordDict) -> Form:
    metrics = _only_metrics(content)[1]
    return frozenset((name, len(value) if isinstance(value, list) else 0) for name, value in metrics.items())


def _usual(forms: Iterable[Form]) -> Form:
    return next((form for form, _ in Counter(forms).most_common(1)), frozenset())


def _words(form: Form) -> str:
    return ", ".join(f"{name}[{length}]" if length else name for name, length in sorted(form))


def _only_metrics(content: RecordDict) -> tuple[str, MetricRecord]:
    found = list(content.metric_records.items())
    if len(found) != 1:
        raise InputError(f"a reply must have one MetricRecord, found {[key for key, _ in found]}")
    return found[0]


def _payload(content: RecordDict) -> bytes:
    arrays = [array for record in content.array_records.values() for array in record.items()]
    if len(arrays) != 1 or arrays[0][0] != UPDATE or arrays[0][1].stype != STYPE:
        raise InputError(NO_MOD)
    return arrays[0][1].data

"""The server's inbox: each reply is looked at on its own, so that a bad one costs its sender's upload and no more."""

import logging
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

from gammafl.core.aggregate import LARGEST_WEIGHT, SMALLEST_WEIGHT
from gammafl.core.errors import GammaflError, InputError
from gammafl.core.sparse import SparseUpdate
from gammafl.federated import server
from gammafl.federated.client import Upload
from gammafl.federated.limits import Limits
from gammafl.federated.receipts import Receipts, Sender
from gammafl.flower.messages import KEY, STYPE, UPDATE, Answer

LOG = logging.getLogger("flwr")

NO_MOD = "it sent a whole model: add gammafl.flower.compress() to the mods of its ClientApp"


REASON_LENGTH = 300
"""A refusal's reason is cut here."""

COPY = "another node sent an upload of client {} in this round: is the state of one a copy of the other's?"


@dataclass(frozen=True)
class Letter:
    """A good upload: who sent it, what it says, and what it weighs."""

    answer: Answer
    upload: Upload
    update: SparseUpdate
    weight: float
    content: RecordDict
    """What else the reply holds: its metrics, and whatever the app adds."""


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

    def sort(self, replies: Iterable[Message], round_number: int, largest: float = math.inf) -> Mail:
        """In the order of the nodes' ids, whichever came first. No value of an update may exceed `largest`."""
        mail = Mail()
        in_order = sorted(replies, key=lambda reply: reply.metadata.src_node_id)
        for node, content in {reply.metadata.src_node_id: reply.content for reply in in_order}.items():
            try:
                self._sort_one(node, _answer(content, round_number), content, largest, mail)
            except GammaflError as error:
                mail.refused[node] = printable(str(error))
        self._settle_contests(mail)
        for node, reason in mail.refused.items():
            LOG.warning("gammafl: upload of node %d refused: %s", node, reason)
        return mail

    def _settle_contests(self, mail: Mail) -> None:
        """Keep one upload a sender, where several nodes have copies of its state.

        The node that the server has accepted an upload of this sender from before goes first; without one, the upload
        with the highest number, since it holds whatever was not confirmed of the others.
        """
        best: dict[Sender, Letter] = {}
        for letter in mail.letters:
            rival = best.setdefault(letter.answer.who, letter)
            if self._rank(letter) > self._rank(rival):
                best[letter.answer.who] = letter
        for letter in mail.letters:
            if best[letter.answer.who] is not letter:
                mail.refused[letter.upload.client] = COPY.format(letter.answer.name)
        mail.letters = [letter for letter in mail.letters if best[letter.answer.who] is letter]

    def _rank(self, letter: Letter) -> tuple[bool, int]:
        at_home = self.receipts.home(letter.answer.who) == letter.upload.client
        return at_home, letter.answer.number

    def _sort_one(self, node: int, answer: Answer, content: RecordDict, largest: float, mail: Mail) -> None:
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
        mail.letters.append(self._letter(node, answer, content, largest))

    def _letter(self, node: int, answer: Answer, content: RecordDict, largest: float) -> Letter:
        weight = weight_of(content, self.weight_key, self.limits.weight)
        upload = Upload(node, _payload(content), 0.0)
        accepted, refused = server.receive([upload], self.dim, self.limits, largest=largest)
        if refused:
            raise InputError(refused[node])
        update = accepted[0][1]
        others: dict[str, Any] = {
            key: record for key, record in content.items() if not isinstance(record, ArrayRecord) and key != KEY
        }
        return Letter(answer, upload, update, weight, RecordDict(others))

    def confirm(self, letters: Sequence[Letter]) -> None:
        """They are in the model: the next broadcast tells their senders."""
        for letter in letters:
            self.receipts.accept(letter.upload.client, letter.answer.who, letter.answer.number, letter.upload.payload)

    def label(self, letter: Letter) -> str:
        """What the ledger calls the sender."""
        return self.receipts.label(letter.upload.client, letter.answer.who)


def printable(text: str) -> str:
    """Part of `text` may be a client's own words: no line breaks, nothing that a terminal would obey, not too long."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text[:REASON_LENGTH])


def _answer(content: RecordDict, round_number: int) -> Answer:
    answer = Answer.read(content)
    if answer is None:
        raise InputError(NO_MOD)
    if answer.round != round_number:
        raise InputError(f"an answer to round {answer.round} in round {round_number}")
    if answer.number > round_number:
        raise InputError(f"upload {answer.number} in round {round_number}: a client makes at most one upload a round")
    return answer


def weight_of(content: RecordDict, key: str, most: float | None = None) -> float:
    """What a reply weighs in an average: a positive number, neither tiny nor huge."""
    weight = _only_metrics(content).get(key)
    if not isinstance(weight, int | float) or not SMALLEST_WEIGHT <= weight <= LARGEST_WEIGHT:
        raise InputError(f"its metric {key!r} must be a positive number from 2⁻⁵³ to 2⁵³, found {weight!r}")
    if most is not None and weight > most:
        raise InputError(f"its metric {key!r} is {weight}, where {most} is allowed")
    return float(weight)


def alike(contents: Iterable[RecordDict], weight_key: str) -> list[RecordDict]:
    """Those whose metrics can be averaged: with a weight, and of the form that most have."""
    found = []
    for content in contents:
        try:
            weight_of(content, weight_key)
            found.append((_form(_only_metrics(content)), content))
        except GammaflError as error:
            LOG.warning("gammafl: metrics left out: %s", printable(str(error)))
    if not found:
        return []
    (usual, count) = Counter(form for form, _ in found).most_common(1)[0]
    if count < len(found):
        LOG.warning("gammafl: metrics of %d replies left out: others are %s", len(found) - count, _words(usual))
    return [content for form, content in found if form == usual]


Form = frozenset[tuple[str, int | None]]
"""Name and length of each metric, None for a number."""


def _form(metrics: MetricRecord) -> Form:
    return frozenset((name, len(value) if isinstance(value, list) else None) for name, value in metrics.items())


def _words(form: Form) -> str:
    return printable(", ".join(name if length is None else f"{name}[{length}]" for name, length in sorted(form)))


def _only_metrics(content: RecordDict) -> MetricRecord:
    found = list(content.metric_records.items())
    if len(found) != 1:
        raise InputError(f"a reply must have one MetricRecord, found {len(found)}")
    return found[0][1]


def _payload(content: RecordDict) -> bytes:
    arrays = [array for record in content.array_records.values() for array in record.items()]
    if len(arrays) != 1 or arrays[0][0] != UPDATE or arrays[0][1].stype != STYPE:
        raise InputError(NO_MOD)
    return arrays[0][1].data

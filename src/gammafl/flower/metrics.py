"""Averages the clients' metrics. Nothing that a client sends in them can end the run."""

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from flwr.app import Message, MetricRecord, RecordDict

from gammafl.core.errors import GammaflError, InputError
from gammafl.federated.limits import NO_LIMITS
from gammafl.federated.server_exchange import weight_within

LOG = logging.getLogger("flwr")

REASON_LENGTH = 300
"""The most characters of a refusal's reason in the log."""

Aggregation = Callable[[list[RecordDict], str], MetricRecord]
Form = frozenset[tuple[str, int | None]]
"""The name and the length of each metric; the length of a number is None."""

Anything = TypeVar("Anything", bound=Hashable)


def printable(text: str) -> str:
    """`text` for the log: shortened, and without line breaks or control characters. A client may have written it."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text[:REASON_LENGTH])


def only_metrics(content: RecordDict) -> MetricRecord:
    """The MetricRecord of a reply."""
    records = list(content.metric_records.values())
    if len(records) != 1:
        raise InputError(f"a reply must have one MetricRecord, found {len(records)}")
    return records[0]


def form_of(metrics: MetricRecord) -> Form:
    return frozenset((name, len(value) if isinstance(value, list) else None) for name, value in metrics.items())


def usual_form(forms: Iterable[Anything]) -> Anything | None:
    """The most frequent form; the first one if several are equally frequent."""
    counts = Counter(forms).most_common(1)
    return counts[0][0] if counts else None


def averaged(average: Aggregation, replies: Iterable[Message], weight_key: str) -> MetricRecord:
    """The average of the clients' metrics. If they can't be averaged: no metrics, and a line in the log."""
    usable = alike(replies, weight_key)
    try:
        return average([reply.content for reply in usable], weight_key) if usable else MetricRecord()
    except Exception as error:  # the app's own function, on what clients sent
        LOG.warning("gammafl: the metrics could not be aggregated: %s", printable(repr(error)))
        return MetricRecord()


def alike(replies: Iterable[Message], weight_key: str) -> list[Message]:
    """The replies whose metrics can be averaged: they have a weight, and the form of most replies."""
    usable = []
    for reply in replies:
        try:
            metrics = only_metrics(reply.content)
            weight_within(metrics.get(weight_key), NO_LIMITS, f"its metric {weight_key!r}")
            usable.append((form_of(metrics), reply))
        except GammaflError as error:
            LOG.warning("gammafl: metrics left out: %s", printable(str(error)))
    usual = usual_form(form for form, _ in usable)
    if usual is None:
        return []
    chosen = [reply for form, reply in usable if form == usual]
    if len(chosen) < len(usable):
        LOG.warning("gammafl: metrics of %d replies left out: others are %s", len(usable) - len(chosen), _words(usual))
    return chosen


def _words(form: Form) -> str:
    return printable(", ".join(name if length is None else f"{name}[{length}]" for name, length in sorted(form)))

"""What a client must not send to some of Flower's strategies: with it, their own code would end the run."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from flwr.app import ArrayRecord, MetricRecord, RecordDict
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import Strategy

from gammafl.core.aggregate import LARGEST_WEIGHT
from gammafl.flower.arrays import floats_in
from gammafl.flower.layout import FLOATS
from gammafl.flower.wrapping import layers

Trap = Callable[[RecordDict, ArrayRecord], str | None]
"""(reply, the model that was sent) → why the reply must be refused; None if it need not be."""

SMALLEST_NORM = 2.0**-60
"""Smaller norms are 0 when they are squared in float32."""


def no_trap(content: RecordDict, sent: ArrayRecord) -> str | None:
    """For strategies without a trap."""
    return None


def trap_of(strategy: Strategy) -> Trap:
    """The trap of a strategy, or of those that it wraps."""
    traps: list[Trap] = []
    for layer in layers(strategy):
        if isinstance(layer, CLIPPING):
            traps.append(_no_change)
        if isinstance(layer, flower.QFedAvg):
            traps.append(partial(_no_loss, layer))
    return partial(_first, traps) if traps else no_trap


CLIPPING = (
    flower.DifferentialPrivacyServerSideFixedClipping,
    flower.DifferentialPrivacyServerSideAdaptiveClipping,
)


def _first(traps: list[Trap], content: RecordDict, sent: ArrayRecord) -> str | None:
    return next((reason for trap in traps if (reason := trap(content, sent))), None)


def _no_change(content: RecordDict, sent: ArrayRecord) -> str | None:
    """Server-side clipping divides by the norm of the change."""
    squares = 0.0
    for record in content.array_records.values():
        for name in record.keys() & sent.keys():
            if record[name].dtype in FLOATS:
                change = floats_in(record[name]).astype(np.float64) - floats_in(sent[name])
                squares += float(np.square(change).sum())
    return None if squares > SMALLEST_NORM**2 else "it changes nothing, and the strategy divides by the change's norm"


def _no_loss(strategy: flower.QFedAvg, content: RecordDict, sent: ArrayRecord) -> str | None:
    """QFedAvg weights an update by a power of the loss."""
    key = strategy.train_loss_key
    loss = next(iter(content.metric_records.values()), MetricRecord()).get(key)
    reason = f"its metric {key!r} is no loss by which the strategy can weight: {loss!r:.80}"
    if not isinstance(loss, int | float) or not 0 <= loss < math.inf:
        return reason
    try:
        return None if float(loss) ** strategy.q <= LARGEST_WEIGHT else reason
    except OverflowError:
        return reason

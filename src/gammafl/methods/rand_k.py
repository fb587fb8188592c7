"""Rand-k: a key draws the entries."""

import numpy as np

from gammafl.core.arrays import Vector
from gammafl.core.memory import ErrorFeedback, NoMemory
from gammafl.core.method import Method
from gammafl.core.rand_k import RandK
from gammafl.methods.precision import Precision, values_of
from gammafl.methods.promises import Promise, planned_share, squared
from gammafl.methods.registry import KEEPS, NOTHING_TO_TUNE, register


def _scaled(method: Method) -> bool:
    return bool(method.compressor.scaled)  # type: ignore[attr-defined]


def _error(method: Method, vector: Vector) -> float:
    share = planned_share(method, vector)
    return (1 / share - 1 if _scaled(method) else 1 - share) * squared(vector)


def _mean(method: Method, vector: Vector) -> Vector:
    return vector if _scaled(method) else np.float32(len(method(vector)) / vector.size) * vector


@register(
    "rand-k",
    label="Rand-k",
    colour="#8C510A",
    dash="dot",
    citation="Stich et al., NeurIPS 2018",
    follows="gamma-fedht",
    cost="O(d) to add, O(k) to draw and take",
    promise=Promise("contraction on average, δ = k/d; with scaled unbiased, ω = d/k − 1", _error, _mean),
    tuned=NOTHING_TO_TUNE,
    ranges={"keep": KEEPS},
)
def rand_k(keep: float = 0.01, k: int | float | None = None, scaled: bool = False, values: Precision = "f32") -> Method:
    """Keeps k random entries, with error feedback. A message has an 8-byte key instead of their positions.

    keep     the kept fraction of the entries
    k        a count (whole number) or a fraction, instead of keep
    scaled   true: sends d/k times the entries, so that their mean is right (unbiased), without a memory
    values   "f32", or fewer bits: "f16", "bf16", "8bit", "4bit", "2bit"

    >>> rand_k(keep=0.001)
    Method(RandK(k=0.001, scaled=False))
    """
    memory = NoMemory() if scaled else ErrorFeedback()
    return Method(RandK(float(keep) if k is None else k, scaled), memory=memory, values=values_of(values))

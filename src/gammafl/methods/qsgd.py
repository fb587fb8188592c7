"""QSGD: random rounding to a few levels. It is also FedPAQ's quantiser."""

from gammafl.core.arrays import Vector
from gammafl.core.blocks import Norm
from gammafl.core.compressors import Dense
from gammafl.core.memory import NoMemory
from gammafl.core.method import Method
from gammafl.core.values import ByChance
from gammafl.methods.promises import Promise, steps_error
from gammafl.methods.registry import register


def _error(method: Method, vector: Vector) -> float:
    values: ByChance = method.values  # type: ignore[assignment]
    return steps_error(vector, values.levels, values.block, values.norm)


@register(
    "qsgd",
    label="QSGD",
    colour="#7F3C8D",
    dash="dot",
    citation="Alistarh et al., NeurIPS 2017; Reisizadeh et al., AISTATS 2020",
    cost="O(d): two passes",
    promise=Promise(
        "unbiased, E‖C(v) − v‖² ≤ Σ n_b·(norm_b/levels)²/4 over blocks of n_b values", _error, lambda method, v: v
    ),
    tuned="untuned: 7 levels take 4 bits per value; blocks of 512 are its paper's choice",
    ranges={"levels": (1, 7, 127)},
)
def qsgd(levels: int = 7, block: int = 512, norm: Norm = "max") -> Method:
    """Rounds every value at random to one of the two nearest levels, so that its mean is right; no memory.

    levels   the levels of each sign. Up to 1, a value takes 2 bits; up to 7, 4 bits; up to 127, 8 bits
    block    the number of values that share a norm: the paper's bucket
    norm     "max": the largest magnitude of a block, as in the paper's experiments; "l2": as in its analysis

    >>> qsgd(levels=1)
    Method(Dense(), memory=NoMemory(), values=ByChance(levels=1, block=512, norm='max'))
    """
    return Method(Dense(), memory=NoMemory(), values=ByChance(levels, block, norm))

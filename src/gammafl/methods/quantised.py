"""Every value as a whole number of few bits, with one scale for each block."""

from typing import Literal

from gammafl.core.arrays import Vector
from gammafl.core.blocks import most_of
from gammafl.core.compressors import Dense
from gammafl.core.method import Method
from gammafl.core.values import Bits
from gammafl.methods.promises import Promise, steps_error
from gammafl.methods.registry import register


def _error(method: Method, vector: Vector) -> float:
    values: Bits = method.values  # type: ignore[assignment]
    return steps_error(vector, most_of(values.bits), values.block)


@register(
    "quantised",
    label="Quantised",
    colour="#80BA5A",
    dash="dot",
    citation="Dettmers, ICLR 2016",
    cost="O(d): two passes, and eight over each block for its scale",
    promise=Promise("absolute, ‖C(v) − v‖² ≤ Σ n_b·(max_b/m)²/4 over blocks of n_b values, m = 2^(bits−1) − 1", _error),
    tuned="untuned: a guess. Smaller blocks are more precise, and have more scales to send",
    ranges={"bits": (2, 4, 8)},
)
def quantised(bits: Literal[8, 4, 2] = 4, block: int = 256) -> Method:
    """Rounds every value to the nearest multiple of its block's scale, with few bits and error feedback.

    bits    the bits of a value: 8, 4 or 2
    block   the number of values that share a scale, which takes 4 bytes

    It is the same as FedAVG with values="4bit", but the size of blocks can be set.

    >>> quantised(bits=2)
    Method(Dense(), values=Bits(bits=2, block=256))
    """
    return Method(Dense(), values=Bits(bits, block))

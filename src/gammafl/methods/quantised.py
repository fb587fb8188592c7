"""Every value as a whole number of few bits, with a scale for each block."""

from typing import Literal

from gammafl.core.compressors import Dense
from gammafl.core.method import Method
from gammafl.core.values import Bits
from gammafl.methods.registry import register


@register("quantised", label="Quantised", colour="#80BA5A", citation="Dettmers, ICLR 2016")
def quantised(bits: Literal[8, 4, 2] = 4, block: int = 256) -> Method:
    """Rounds every value to the nearest of few multiples of its block's scale, with error feedback.

    bits    of a value: 8, 4 or 2
    block   values that share a scale, which takes 4 bytes

    It is FedAVG with values="4bit" under a name of its own, and with a choice of blocks.

    >>> quantised(bits=2)
    Method(Dense(), values=Bits(bits=2, block=256))
    """
    return Method(Dense(), values=Bits(bits, block))

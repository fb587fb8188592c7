"""QSGD: random rounding to a few levels. FedPAQ's quantiser too."""

from gammafl.core.blocks import Norm
from gammafl.core.compressors import Dense
from gammafl.core.memory import NoMemory
from gammafl.core.method import Method
from gammafl.core.values import ByChance
from gammafl.methods.registry import register


@register(
    "qsgd", label="QSGD", colour="#7F3C8D", citation="Alistarh et al., NeurIPS 2017; Reisizadeh et al., AISTATS 2020"
)
def qsgd(levels: int = 7, block: int = 512, norm: Norm = "max") -> Method:
    """Rounds every value at random to one of the two levels beside it, so that it is right on average; no memory.

    levels   of each sign, 1 to 127; with up to 1, 7, 127 a value takes 2, 4, 8 bits
    block    values that share a norm: the paper's bucket
    norm     "max": the largest magnitude of a block, as in the paper's experiments; "l2": as in its analysis

    >>> qsgd(levels=1)
    Method(Dense(), memory=NoMemory(), values=ByChance(levels=1, block=512, norm='max'))
    """
    return Method(Dense(), memory=NoMemory(), values=ByChance(levels, block, norm))

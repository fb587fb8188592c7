"""FedAVG: everything is sent."""

from gammafl.core.compressors import Dense
from gammafl.core.method import Method
from gammafl.methods.precision import Precision, values_of
from gammafl.methods.promises import EXACT
from gammafl.methods.registry import register


@register(
    "fedavg",
    label="FedAVG",
    colour="#000000",
    dash="dash",
    citation="McMahan et al., AISTATS 2017",
    cost="O(d): a copy",
    promise=EXACT,
    tuned="nothing to tune",
)
def fedavg(values: Precision = "f32") -> Method:
    """Sends the whole update.

    values   "f32", or fewer bits with error feedback: "f16", "bf16", "8bit", "4bit", "2bit"

    >>> fedavg()
    Method(Dense())
    """
    return Method(Dense(), values=values_of(values))

"""DRIVE: the signs of a randomly rotated update, one bit per value."""

from gammafl.core.compressors import Dense
from gammafl.core.memory import ErrorFeedback, NoMemory
from gammafl.core.method import Method
from gammafl.core.rotation import ScaleRule
from gammafl.core.values import Rotation
from gammafl.methods.promises import Promise, squared
from gammafl.methods.registry import register


@register(
    "drive",
    label="DRIVE",
    colour="#E73F74",
    dash="dashdot",
    citation="Vargaftik et al., NeurIPS 2021",
    cost="O(d·log d)",
    promise=Promise(
        "nearly unbiased over rotations, with ω about π/2 − 1; not if a few entries are far larger than all others",
        lambda method, vector: squared(vector),
    ),
    tuned="nothing to tune",
)
def drive(scale: ScaleRule = "unbiased") -> Method:
    """Rotates the update at random (Hadamard) and sends the signs and a scale: one bit per value, in O(d·log d).

    scale   "unbiased": S = ‖x‖²/‖Rx‖₁, whose mean over rotations is right, without a memory; "nearest": S = ‖Rx‖₁/d,
            with the least squared error, with error feedback

    Blocks of 2¹⁶ values, and shorter ones at the end, are rotated separately. Its authors fill the whole vector up to
    a power of two, which may double the bits.

    >>> drive()
    Method(Dense(), memory=NoMemory(), values=Rotation(scale='unbiased'))
    """
    memory = NoMemory() if scale == "unbiased" else ErrorFeedback()
    return Method(Dense(), memory=memory, values=Rotation(scale))

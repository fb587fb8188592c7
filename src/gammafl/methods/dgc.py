"""DGC: Top-k with momentum correction and factor masking."""

from gammafl.core.compressors import Scope, TopK
from gammafl.core.method import Method
from gammafl.core.momentum import MomentumCorrection
from gammafl.methods.promises import TOP_K
from gammafl.methods.registry import KEEPS, register


@register(
    "dgc",
    label="DGC",
    colour="#7F7F7F",
    dash="dash",
    citation="Lin et al., ICLR 2018",
    cost="O(d): three passes, one of them Top-k's",
    memory="client: 2·d floats, the residual and the velocity",
    promise=TOP_K,
    tuned="momentum = 0.9 is its paper's. Of 0, 0.5 and 0.9 on Logistic@FMNIST, #C=2, 0 was best, which is Top-k:"
    " docs/shifts.md. The paper's warm-up and clipping are left out",
    ranges={"keep": KEEPS, "momentum": (0.0, 0.5, 0.9)},
)
def dgc(keep: float = 0.01, k: int | float | None = None, scope: Scope = "global", momentum: float = 0.9) -> Method:
    """Top-k of updates with momentum: entries that wait to be sent keep their momentum.

    keep       the kept fraction of the entries
    k          a count (whole number) or a fraction, instead of keep
    scope      "global": of the whole model; "tensor": of each tensor, as in its paper
    momentum   of the velocity, which is compressed instead of the update. It multiplies the stepsize by up to
               1/(1 − momentum), so use a smaller stepsize

    >>> dgc(keep=0.001)
    Method(TopK(k=0.001, scope='global'), memory=MomentumCorrection(momentum=0.9))
    """
    return Method(TopK(float(keep) if k is None else k, scope), MomentumCorrection(momentum))

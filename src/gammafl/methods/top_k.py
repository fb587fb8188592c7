"""Top-k: the entries of largest magnitude."""

from gammafl.core.compressors import Scope, TopK
from gammafl.core.method import Method
from gammafl.methods.precision import Precision, values_of
from gammafl.methods.promises import TOP_K
from gammafl.methods.registry import KEEPS, NOTHING_TO_TUNE, register

COST = "O(d): one fused pass, with a sample before it and an exact choice among candidates after it"


@register(
    "top-k",
    label="Top-k",
    colour="#D55E00",
    citation="Stich et al., NeurIPS 2018",
    follows="gamma-fedht",
    cost=COST,
    promise=TOP_K,
    tuned=NOTHING_TO_TUNE,
    ranges={"keep": KEEPS},
)
def top_k(
    keep: float = 0.01, k: int | float | None = None, scope: Scope = "global", values: Precision = "f32"
) -> Method:
    """Keeps the k entries of largest magnitude, with error feedback.

    keep     the kept fraction of the entries
    k        a count (whole number) or a fraction, instead of keep
    scope    "global": of the whole model; "tensor": of each tensor
    values   "f32", or fewer bits: "f16", "bf16", "8bit", "4bit", "2bit"

    >>> top_k(keep=0.001, scope="tensor")
    Method(TopK(k=0.001, scope='tensor'))
    """
    return Method(TopK(float(keep) if k is None else k, scope), values=values_of(values))

"""STC: Top-k with ternary values."""

from gammafl.core.compressors import Scope, TopK
from gammafl.core.method import Method
from gammafl.core.values import Ternary
from gammafl.methods.promises import TERNARY
from gammafl.methods.registry import KEEPS, NOTHING_TO_TUNE, register
from gammafl.methods.top_k import COST


@register(
    "stc",
    label="STC",
    colour="#E69F00",
    citation="Sattler et al., TNNLS 2019",
    follows="gamma-fedht-q",
    cost=COST,
    promise=TERNARY,
    tuned=NOTHING_TO_TUNE,
    ranges={"keep": KEEPS},
)
def stc(keep: float = 0.01, k: int | float | None = None, scope: Scope = "global") -> Method:
    """Sparse ternary compression: Top-k, kept values rounded to ±μ, with error feedback.

    keep    the kept fraction of the entries
    k       a count (whole number) or a fraction, instead of keep
    scope   "global": of the whole model; "tensor": of each tensor, as in its authors' code

    >>> stc(keep=0.001)
    Method(TopK(k=0.001, scope='global'), values=Ternary())
    """
    return Method(TopK(float(keep) if k is None else k, scope), values=Ternary())

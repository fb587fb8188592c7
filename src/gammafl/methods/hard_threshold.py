"""HT: the hard threshold with a fixed λ."""

from gammafl.core.compressors import HardThreshold
from gammafl.core.levels import PaperLevel
from gammafl.core.method import Method
from gammafl.core.thresholds import Units
from gammafl.methods.precision import Precision, values_of
from gammafl.methods.registry import register


@register("ht", label="HT", colour="#009E73", citation="Sahu et al., NeurIPS 2021")
def hard_threshold(
    keep: float = 0.01, threshold: float | None = None, units: Units = "update", values: Precision = "f32"
) -> Method:
    """Keeps |v_j| > λ in O(d), with error feedback.

    keep        the fraction of entries that λ is calibrated for, as in the paper's Table II
    threshold   λ itself, instead
    units       "update", or "gradient": the threshold is λ·γ_t
    values      "f32", or "f16" for 16-bit floats

    >>> hard_threshold(threshold=0.02)
    Method(HardThreshold(value=0.02, units='update'))
    """
    if threshold is not None:
        return Method(HardThreshold(threshold, units), values=values_of(values))
    return Method(HardThreshold(units=units), values=values_of(values), level=PaperLevel(keep))

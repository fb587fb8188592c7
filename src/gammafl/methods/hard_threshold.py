"""HT: the hard threshold with a fixed λ."""

from gammafl.core.compressors import HardThreshold
from gammafl.core.levels import Profile
from gammafl.core.method import Method
from gammafl.core.thresholds import Units
from gammafl.methods.levels import THRESHOLD_COST, LevelName, level_named
from gammafl.methods.precision import Precision, values_of
from gammafl.methods.promises import THRESHOLD
from gammafl.methods.registry import KEEPS, NOTHING_TO_TUNE, register


@register(
    "ht",
    label="HT",
    colour="#009E73",
    citation="Sahu et al., NeurIPS 2021",
    cost=THRESHOLD_COST,
    promise=THRESHOLD,
    tuned=NOTHING_TO_TUNE,
    ranges={"keep": KEEPS},
)
def hard_threshold(
    keep: float = 0.01,
    threshold: float | None = None,
    units: Units = "update",
    values: Precision = "f32",
    level: LevelName = "upload",
    profile: Profile = "constant",
) -> Method:
    """Keeps |v_j| > λ in O(d), with error feedback.

    keep        the kept fraction of the entries
    level       how `keep` is reached. "upload": each upload keeps exactly that many, its largest; "run": the server
                steers one λ for all; "paper": λ is calibrated for it as in the paper's Table II
    profile     of level "upload": "constant", or "gamma": `keep` on average, following γ-FedHT's threshold
    threshold   λ itself, instead of a level
    units       "update", or "gradient": the threshold is λ·γ_t; not for level "upload"
    values      "f32", or fewer bits: "f16", "bf16", "8bit", "4bit", "2bit"

    >>> hard_threshold(threshold=0.02)
    Method(HardThreshold(value=0.02, units='update'))
    """
    chosen = level_named(level, keep, profile)
    if threshold is not None:
        return Method(HardThreshold(threshold, units), values=values_of(values))
    return Method(HardThreshold(units=units), values=values_of(values), level=chosen)

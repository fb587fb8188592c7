"""γ-FedHT: the hard threshold that follows the stepsize; and γ-FedHT-Q, the same with STC's quantiser."""

from gammafl.core.compressors import GammaFedHT
from gammafl.core.levels import Level, Profile
from gammafl.core.method import Method
from gammafl.core.thresholds import Units
from gammafl.core.values import Ternary, Values
from gammafl.methods.levels import THRESHOLD_COST, LevelName, level_named
from gammafl.methods.precision import Precision, values_of
from gammafl.methods.promises import TERNARY_THRESHOLD, THRESHOLD
from gammafl.methods.registry import KEEPS, NOTHING_TO_TUNE, register

CITATION = "Lu et al., γ-FedHT: Stepsize-Aware Hard-Threshold Gradient Compression in Federated Learning"


@register(
    "gamma-fedht",
    label="γ-FedHT",
    colour="#0072B2",
    citation=CITATION,
    cost=THRESHOLD_COST,
    promise=THRESHOLD,
    tuned=NOTHING_TO_TUNE,
    ranges={"keep": KEEPS},
)
def gamma_fedht(
    keep: float = 0.01,
    initial_threshold: float | None = None,
    alpha: float = 1.0,
    units: Units = "update",
    values: Precision = "f32",
    level: LevelName = "upload",
    profile: Profile = "constant",
) -> Method:
    """Keeps |v_j| > λ_t in O(d), where λ_t follows the stepsize γ_t, with error feedback (Algorithm 1).

    keep                the kept fraction of the entries
    level               how `keep` is reached. "upload": each upload keeps exactly that many, its largest; "run": the
                        server steers one λ_0 for all; "paper": λ_0 is calibrated for it as in the paper's Table II
    profile             of level "upload": "constant", or "gamma": `keep` on average, and more where λ_t is low
    initial_threshold   λ_0 itself, instead of a level
    alpha               how strongly λ_t follows γ_t; not for level "upload"
    units               "update", or "gradient": the threshold is λ_t·γ_t; not for level "upload"
    values              "f32", or fewer bits: "f16", "bf16", "8bit", "4bit", "2bit"

    >>> gamma_fedht(keep=0.001)
    Method(GammaFedHT(initial=1.0, alpha=1.0, units='update'), level=UploadLevel(keep=0.001, profile='constant'))
    """
    return _made(initial_threshold, alpha, units, values_of(values), level_named(level, keep, profile))


@register(
    "gamma-fedht-q",
    label="γ-FedHT-Q",
    colour="#56B4E9",
    citation=CITATION,
    cost=THRESHOLD_COST,
    promise=TERNARY_THRESHOLD,
    tuned=NOTHING_TO_TUNE,
    ranges={"keep": KEEPS},
)
def gamma_fedht_q(
    keep: float = 0.01,
    initial_threshold: float | None = None,
    alpha: float = 1.0,
    units: Units = "update",
    level: LevelName = "upload",
    profile: Profile = "constant",
) -> Method:
    """γ-FedHT, with kept values rounded to ±μ: one bit each, μ their mean magnitude.

    keep                the kept fraction of the entries
    level               how `keep` is reached. "upload": each upload keeps exactly that many, its largest; "run": the
                        server steers one λ_0 for all; "paper": λ_0 is calibrated for it as in the paper's Table II
    profile             of level "upload": "constant", or "gamma": `keep` on average, and more where λ_t is low
    initial_threshold   λ_0 itself, instead of a level
    alpha               how strongly λ_t follows γ_t; not for level "upload"
    units               "update", or "gradient": the threshold is λ_t·γ_t; not for level "upload"

    >>> gamma_fedht_q(initial_threshold=0.1)
    Method(GammaFedHT(initial=0.1, alpha=1.0, units='update'), values=Ternary())
    """
    return _made(initial_threshold, alpha, units, Ternary(), level_named(level, keep, profile))


def _made(initial: float | None, alpha: float, units: Units, values: Values, level: Level) -> Method:
    if initial is not None:
        return Method(GammaFedHT(initial, alpha, units), values=values)
    return Method(GammaFedHT(alpha=alpha, units=units), values=values, level=level)

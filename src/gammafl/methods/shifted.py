"""Methods whose clients and server share a shift: γ-FedHT-S and EF21."""

from typing import Literal, get_args

from gammafl.core.compressors import GammaFedHT, Scope, TopK
from gammafl.core.errors import require
from gammafl.core.levels import Level, PaperLevel, RunLevel
from gammafl.core.method import Method
from gammafl.core.shifts import EF21, Half, Shifts
from gammafl.core.values import Ternary
from gammafl.methods.promises import TERNARY_THRESHOLD, TOP_K
from gammafl.methods.registry import KEEPS, register

ShiftedLevel = Literal["run", "paper"]
"""The possible levels. Level "upload" always keeps `keep`, and would undo what shifts save."""


@register(
    "gamma-fedht-s",
    label="γ-FedHT-S",
    colour="#6A3D9A",
    citation="γ-FedHT-Q with shifts. Relatives: DIANA (Mishchenko et al. 2019), SCAFFOLD (Karimireddy et al., ICML"
    " 2020), SCALLION and SCAFCOM (Huang et al., ICLR 2024)",
    cost="O(d): three passes, one of them γ-FedHT's",
    memory="client: 2·d floats, the residual and the shift; server: d floats with server=sum, up to n·d with each",
    promise=TERNARY_THRESHOLD,
    tuned="rate = 0.03 was the best of three on Logistic@FMNIST, #C=2; confirmed on other seeds: docs/shifts.md",
    ranges={"keep": KEEPS, "rate": (0.02, 0.03, 0.05)},
)
def gamma_fedht_s(
    keep: float = 0.01,
    initial_threshold: float | None = None,
    rate: float = 0.03,
    server: Half = "sum",
    level: ShiftedLevel = "run",
) -> Method:
    """γ-FedHT-Q of the difference between an update and what this client usually sends.

    keep                the kept fraction before shifts are in use; later uploads keep less
    initial_threshold   λ_0 itself, instead of a level
    rate                how fast a shift follows what is sent
    server              "sum": the server keeps the mean shift, for servers that average; "each": it keeps each
                        client's shift, for any strategy, with up to n·d floats
    level               "run": λ_0 is found in a warm-up of 20 rounds, then fixed; "paper": as in the paper's Table II

    >>> gamma_fedht_s(initial_threshold=0.1).memory
    Shifts(rate=0.03, server_half='sum')
    """
    known = get_args(ShiftedLevel)
    require(level in known, f"level of γ-FedHT-S must be one of {', '.join(known)}, got {level!r}: docs/shifts.md")
    memory = Shifts(rate, server)
    if initial_threshold is not None:
        return Method(GammaFedHT(initial_threshold), memory, Ternary())
    found: Level = PaperLevel(keep) if level == "paper" else RunLevel(keep, steers=False)
    return Method(GammaFedHT(), memory, Ternary(), found)


@register(
    "ef21",
    label="EF21",
    colour="#8C6D31",
    dash="dash",
    citation="Richtárik et al., NeurIPS 2021; Fatkhullin et al. 2021",
    cost="O(d): three passes, one of them Top-k's",
    memory="client: d floats, the estimate; server: d floats with server=sum, up to n·d with each",
    promise=TOP_K,
    tuned="server = sum or each, and keep up to 0.1, tried on Logistic@FMNIST, #C=2: sum is better for keep ≥ 0.01,"
    " and it needs a large `keep`: docs/shifts.md",
    ranges={"keep": (*KEEPS, 0.1)},
)
def ef21(keep: float = 0.01, k: int | float | None = None, scope: Scope = "global", server: Half = "sum") -> Method:
    """EF21: Top-k of the difference between an update and an estimate that client and server both know.

    keep     the kept fraction of the entries
    k        a count (whole number) or a fraction, instead of keep
    scope    "global": of the whole model; "tensor": of each tensor
    server   "sum": the step of a round is the mean estimate of all clients (EF21-PP); "each": of the round's clients

    >>> ef21(keep=0.001)
    Method(TopK(k=0.001, scope='global'), memory=EF21(rate=1.0, server_half='sum'))
    """
    return Method(TopK(float(keep) if k is None else k, scope), EF21(server_half=server))

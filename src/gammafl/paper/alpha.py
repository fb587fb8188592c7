"""α of γ-FedHT: is α = 1 the best of 1, 1.5, 2, 3, as Remarks 3 and 6 say?

Two readings: at a matched budget (λ_0 from ∫1/λ² = ∫1/λ_t² for each α), and at the same λ_0 (as in the theorems, where
a larger α means a smaller λ_t and more traffic).
"""

from gammafl.experiments.claims import Claim, beats
from gammafl.experiments.columns import READINGS, READINGS_NOTE, GridTable, size, spread
from gammafl.experiments.grid import Factor, Level, Study
from gammafl.experiments.levels import USUALLY_QUICK, tasks
from gammafl.experiments.row_charts import intervals_of
from gammafl.paper.printed import TABLE_II
from gammafl.paper.shared import MINI, TASKS, by_task

MATCHED, SAME = "matched budget", "same λ_0"
ALPHAS = ("1", "1.5", "2", "3")
INITIAL = by_task(
    {"compression": {"initial_threshold": TABLE_II["Logistic@FMNIST"].inverse}},
    {"compression": {"initial_threshold": TABLE_II["CNN@CIFAR-10"].inverse}},
)


def _best(budget: str) -> list[Claim]:
    one, *others = ({"alpha": alpha, "budget": budget} for alpha in ALPHAS)
    return [
        beats(
            f"α = 1 is more accurate than larger α, {budget}", "Remarks 3, 6", one, *others,
            name=lambda a, b: f"α=1 − α={b['alpha']}, {budget}",
        ),
        beats(
            f"α = 1 ends with a lower loss than larger α, {budget}", "Remarks 3, 6", one, *others,
            key="last_loss", name=lambda a, b: f"loss at α={b['alpha']} − at α=1, {budget}",
        ),
    ]  # fmt: skip


CLAIMS = (*_best(MATCHED), *_best(SAME))
ALPHA = Study(
    "alpha",
    "Remarks 3 and 6: is α = 1 the best of 1, 1.5, 2, 3?",
    (
        tasks(*TASKS, further=(MINI,)),
        Factor("budget", (Level(MATCHED), Level(SAME, where=INITIAL))),
        Factor("alpha", (Level("1"), *(Level(a, {"compression": {"alpha": float(a)}}) for a in ALPHAS[1:]))),
    ),
    claims=CLAIMS,
    tables=(
        GridTable(
            ("budget", "alpha"),
            (
                *READINGS,
                spread("last_loss", "loss, last", 1, 4),
                spread("kept_fraction", "kept %", 100, 3),
                size("uplink_bytes_per_client", "uplink per client"),
            ),
            READINGS_NOTE,
            head="threshold",
            name=lambda cell: f"α = {cell['alpha']}, {cell['budget']}",
        ),
    ),
    charts=(intervals_of("alpha", "α", "lead of α = 1 ({unit})", CLAIMS),),
    settings={"method": "gamma-fedht"},
    quick=USUALLY_QUICK,
)

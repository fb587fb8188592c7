"""Beyond the paper: shifts, both directions, a byte budget and the averaged model, against FedAVG and γ-FedHT-Q.

Settings were chosen on other seeds or by their bytes: docs/shifts.md, docs/downlink.md and docs/budgets.md.
"""

from gammafl.config.budget import Budget
from gammafl.experiments.claims import Claim, Part, lead, ratio_is, sends_less
from gammafl.experiments.compare import TABLE, UP
from gammafl.experiments.grid import Factor, Level, Study
from gammafl.experiments.labels import label
from gammafl.experiments.levels import USUALLY_QUICK, tasks
from gammafl.experiments.pareto import ACCURACIES, both_ways
from gammafl.experiments.row_charts import intervals_of
from gammafl.experiments.rows import Rows
from gammafl.paper.averaging import GAIN
from gammafl.paper.shared import MINI, TASKS, by_task

DATA = by_task(*({"partition": {"kind": "labels", "classes": count}} for count in (2, 3)))
MAY_LOSE = by_task(logistic=0.25, cnn=1.5)
"""How many points a method may lose to FedAVG: the goals in docs/shifts.md."""
TIMES_LESS = 100.0
"""How many times fewer bytes than FedAVG both directions together should take."""
BUDGET = by_task(logistic="3.5 MB/run", cnn="39 MB/run")
"""About the bytes that γ-FedHT-Q sends without a budget."""
OFF_BUDGET = 2.0
"""How far a run may be from its budget, in per cent: docs/budgets.md."""
SHIFTS, MORE, BOTH, BUDGETED = (
    "gamma-fedht-s", "gamma-fedht-s, other keep", "gamma-fedht-q, both ways", "gamma-fedht-q, budget",
)  # fmt: skip


def _as_good(method: str) -> Claim:
    """The claim that `method` is nearly as accurate as FedAVG, both with the raw and with the averaged model."""

    def parts(rows: Rows) -> list[Part]:
        limit, places = -MAY_LOSE[rows.task], ({"method": method}, {"method": "fedavg"})
        return [
            Part(f"{label(method)} − FedAVG, {name}", lead(rows, *places, key), "above", limit, rows.unit)
            for key, name in ACCURACIES.items()
        ]

    logistic, cnn = (MAY_LOSE[task] for task in TASKS)
    return Claim(
        f"{label(method)} loses less than {logistic} (Logistic) or {cnn} points (CNN) to FedAVG", "ours", parts
    )


def _off_budget(rows: Rows) -> list[Part]:
    total = Budget.of(BUDGET[rows.task]).run or 0
    off = rows.by_seed("uplink_bytes", method=BUDGETED).each(lambda sent: 100 * (sent / total - 1))
    text = f"off {BUDGET[rows.task]}"
    return [Part(text, off, "above", -OFF_BUDGET, "%"), Part(text, off, "below", OFF_BUDGET, "%")]


_AS_GOOD = tuple(map(_as_good, (SHIFTS, MORE, BOTH, BUDGETED)))
BEYOND = Study(
    "beyond",
    "Ours: shifts, both directions, budgets and averaged models; Logistic #C = 2, CNN #C = 3",
    (
        tasks(*TASKS, further=(MINI,), where=DATA),
        Factor(
            "method",
            (
                Level("fedavg", {"method": "fedavg"}),
                Level("gamma-fedht-q", {"method": "gamma-fedht-q"}),
                Level(SHIFTS, {"method": "gamma-fedht-s"}),
                Level(
                    MORE, {"method": "gamma-fedht-s"},
                    by_task({"compression": {"keep": 0.0092}}, {"compression": {"keep": 0.0017}}),
                ),
                Level(
                    BOTH, {"method": "gamma-fedht-q"},
                    by_task({"downlink": "gamma-fedht-q:keep=0.04"}, {"downlink": "gamma-fedht-q:keep=0.02"}),
                ),
                Level(BUDGETED, {"method": "gamma-fedht-q"}, {task: {"budget": text} for task, text in BUDGET.items()}),
            ),
        ),
    ),
    claims=(
        *_AS_GOOD,
        *(
            sends_less(f"{label(method)} sends less than γ-FedHT-Q", "ours", method, "gamma-fedht-q", key=UP)
            for method in (SHIFTS, MORE)
        ),
        ratio_is(
            f"γ-FedHT-Q both ways sends and receives {TIMES_LESS:g} times less than FedAVG", "ours",
            lambda rows: {"times": rows.by_seed(both_ways, method="fedavg") / rows.by_seed(both_ways, method=BOTH)},
            "above", TIMES_LESS,
        ),
        Claim(f"A run comes within {OFF_BUDGET:g}% of its budget", "ours", _off_budget),
        GAIN,
    ),
    tables=(TABLE,),
    charts=(intervals_of("beyond", "against FedAVG", "difference ({unit})", _AS_GOOD),),
    quick=USUALLY_QUICK,
    seeds=(300, 301, 302),
)  # fmt: skip

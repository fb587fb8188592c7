"""α of γ-FedHT: is α = 1 the best of 1, 1.5, 2, 3, as Remarks 3 and 6 say?

Two readings: at a matched budget (λ_0 from ∫1/λ² = ∫1/λ_t² for each α), and at the same λ_0 (as in the theorems, where
a larger α means a smaller λ_t and more traffic).
"""

from gammafl.experiments.claims import Claim, Part
from gammafl.experiments.grid import Factor, Level, Study
from gammafl.experiments.results import Results, difference
from gammafl.federated.units import show_bytes
from gammafl.paper.comparisons import QUICK, gain, interval_picture, scale_of, spread, title_of
from gammafl.paper.printed import TABLE_II
from gammafl.report.pictures import Picture
from gammafl.report.tables import TextTable

MATCHED, SAME = "matched budget", "same λ_0"
ALPHAS = ("1", "1.5", "2", "3")
INITIAL = {
    "logistic-fmnist": {"compression": {"initial_threshold": TABLE_II["Logistic@FMNIST"].inverse}},
    "cnn-cifar10": {"compression": {"initial_threshold": TABLE_II["CNN@CIFAR-10"].inverse}},
}


def _others(results: Results) -> list[str]:
    return [alpha for alpha in results.levels["alpha"] if alpha != "1"]


def _more_accurate(results: Results, budget: str) -> list[Part]:
    unit = scale_of(results)[1]
    return [
        Part(
            f"α=1 − α={alpha}, {budget}",
            gain(results, {"alpha": "1", "budget": budget}, {"alpha": alpha, "budget": budget}),
            unit=unit,
        )
        for alpha in _others(results)
    ]


def _lower_loss(results: Results, budget: str) -> list[Part]:
    parts = []
    for alpha in _others(results):
        other, ours = (results.by_seed("last_loss", alpha=a, budget=budget) for a in (alpha, "1"))
        parts.append(Part(f"loss at α={alpha} − at α=1, {budget}", difference(other, ours), unit="loss"))
    return parts


def _table(results: Results) -> list[TextTable]:
    rows = []
    for budget in results.levels["budget"]:
        for alpha in results.levels["alpha"]:
            cell = {"budget": budget, "alpha": alpha}
            sent = results.by_seed("uplink_bytes_per_client", **cell)
            if sent:
                uplink = show_bytes(sum(sent.values()) / len(sent))
                shown = [spread(results, key, cell) for key in ("last_mean", "averaged")]
                loss, kept = spread(results, "last_loss", cell, 1, 4), spread(results, "kept_fraction", cell, 100, 3)
                rows.append([f"α = {alpha}, {budget}", *shown, loss, kept, uplink])
    columns = ["threshold", "accuracy %, last", "averaged", "loss, last", "kept %", "uplink per client"]
    return [TextTable(f"alpha: {results.task}, {results.seeds_in_words()}", columns, rows, "± over seeds")]


def _pictures(results: Results) -> list[Picture]:
    parts = [part for budget in results.levels["budget"] for part in _more_accurate(results, budget)]
    return interval_picture("alpha", title_of(results, "α"), "lead of α = 1 (points)", parts)


def _claims(budget: str) -> list[Claim]:
    source = "Remarks 3, 6"
    return [
        Claim(f"α = 1 is more accurate than larger α, {budget}", source, lambda r: _more_accurate(r, budget)),
        Claim(f"α = 1 ends with a lower loss than larger α, {budget}", source, lambda r: _lower_loss(r, budget)),
    ]


ALPHA = Study(
    "alpha",
    "Remarks 3 and 6: is α = 1 the best of 1, 1.5, 2, 3?",
    ("logistic-fmnist", "cnn-cifar10"),
    (
        Factor("budget", (Level(MATCHED), Level(SAME, by_task=INITIAL))),
        Factor("alpha", tuple(Level(alpha, {"compression": {"alpha": float(alpha)}}) for alpha in ALPHAS)),
    ),
    tuple(claim for budget in (MATCHED, SAME) for claim in _claims(budget)),
    _table,
    _pictures,
    settings={"method": "gamma-fedht"},
    quick=QUICK,
)

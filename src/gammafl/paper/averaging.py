"""The server's averaged model against its last one, for every method: a gain without traffic, and is it the paper's?"""

from gammafl.experiments.claims import Claim, Part
from gammafl.experiments.grid import Study
from gammafl.experiments.levels import LEVELS, classes, label, methods
from gammafl.experiments.results import Results, Run, difference
from gammafl.paper.comparisons import QUICK, interval_picture, scale_of, spread, title_of
from gammafl.paper.printed import printed
from gammafl.report.pictures import Picture
from gammafl.report.tables import TextTable


def _places(results: Results) -> list[dict[str, str]]:
    return [{"method": m, "classes": c} for c in results.levels["classes"] for m in results.levels["method"]]


def _word(place: dict[str, str]) -> str:
    return f"{label(place['method'])}, #C={place['classes']}"


def _gains(results: Results) -> list[Part]:
    """Averaged − last: the raw model as the mean of its last evaluations, which is kinder to it than the final one."""
    scale, unit = scale_of(results)
    sign = scale if unit == "points" else -1.0
    parts = []
    for place in _places(results):
        gained = difference(results.by_seed("averaged", **place), results.by_seed("last_mean", **place))
        parts.append(Part(_word(place), {seed: sign * value for seed, value in gained.items()}, unit=unit))
    return parts


def _nearer(results: Results) -> list[Part]:
    """|last − paper| − |averaged − paper|: above 0 where the averaged model is the nearer one."""
    parts = []
    for place in _places(results):
        paper = printed(results.task, place["classes"], place["method"])
        if paper is not None:
            goal = paper.accuracy / 100

            def nearer(run: Run, goal: float = goal) -> float | None:
                last, averaged = run.figures["last_mean"], run.figures["averaged"]
                return None if averaged is None else 100 * (abs(last - goal) - abs(averaged - goal))

            parts.append(Part(_word(place), results.by_seed(nearer, **place), unit="points nearer"))
    return parts


def _table(results: Results) -> list[TextTable]:
    scale = scale_of(results)[0]
    rows = []
    for place in _places(results):
        if results.has(**place):
            paper = printed(results.task, place["classes"], place["method"])
            shown = [spread(results, key, place, scale) for key in ("final", "last_mean", "averaged")]
            rows.append([_word(place), *shown, f"{paper.accuracy:.2f}" if paper else "–"])
    columns = ["method", "final", "mean of the last", "averaged model", "paper"]
    note = "averaged: mean of the server's models over the last tenth of the rounds; ± over seeds"
    return [TextTable(f"averaging: {results.task}, {results.seeds_in_words()}", columns, rows, note)]


def _pictures(results: Results) -> list[Picture]:
    title = title_of(results, "averaged server model against the last ones")
    return interval_picture("averaging", title, f"gain ({scale_of(results)[1]})", _gains(results))


AVERAGING = Study(
    "averaging",
    "Ours: the averaged server model against the raw one, every method, #C = 2, 3, 5",
    ("logistic-fmnist", "cnn-cifar10"),
    (classes(2, 3, 5), methods(*LEVELS, quick=("gamma-fedht", "top-k", "fedavg"))),
    (
        Claim("The averaged model is more accurate than the raw one, for every method and #C", "ours", _gains),
        Claim("The averaged model is nearer to the paper's accuracy than the raw one", "ours", _nearer),
    ),
    _table,
    _pictures,
    quick=QUICK,
)

"""How the results of studies become parts of claims, rows and lines, and what --quick means for each task."""

from collections.abc import Mapping, Sequence
from statistics import mean, stdev

from gammafl.experiments.claims import Part
from gammafl.experiments.intervals import interval
from gammafl.experiments.levels import label
from gammafl.experiments.results import Results, Run, difference, mean_curves
from gammafl.paper.printed import printed_gap
from gammafl.report.pictures import COLOURS as PALETTE
from gammafl.report.pictures import Estimate, IntervalPicture, Picture

QUICK = {
    "": {"iterations": 100, "evaluation": {"every": 2, "last": 3, "samples": 500}},
    "cnn-cifar10": {"iterations": 20, "evaluation": {"every": 1, "samples": 100}},
    "vgg11s-flickr": {"iterations": 10, "evaluation": {"every": 1, "samples": 50}},
    "vgg11s-pacs": {"iterations": 10, "evaluation": {"every": 1, "samples": 50}},
    "gpt2-wikitext2": {
        "iterations": 1,
        "local_steps": 1,
        "clients": 2,
        "sequence": 16,
        "evaluation": {"every": 1, "samples": 2},
    },
    "gpt2-tiny-sotu": {"iterations": 10, "evaluation": {"every": 1, "samples": 20}},
}


def scale_of(results: Results) -> tuple[float, str]:
    """Accuracies are shown in points (per cent), everything else as it is."""
    metric = results.runs[0].figures.get("metric") if results.runs else None
    return (100.0, "points") if metric in (None, "accuracy") else (1.0, str(metric))


def gain(results: Results, first: dict[str, str], second: dict[str, str], key: str = "last_mean") -> dict[int, float]:
    """How much better `first` is than `second`, seed by seed: in points of accuracy, or in perplexity saved."""
    scale, unit = scale_of(results)
    sign = scale if unit == "points" else -1.0
    paired = difference(results.by_seed(key, **first), results.by_seed(key, **second))
    return {seed: sign * value for seed, value in paired.items()}


def better(
    results: Results, first: str, second: str, limit: float = 0.0, key: str = "last_mean", share_of_paper: float = 0.0
) -> list[Part]:
    """For each #C: method `first` is better than `second` by more than `limit`, or than a share of the paper's gap."""
    unit = scale_of(results)[1]
    parts = []
    for c in results.levels.get("classes", ["2"]):
        place = {"classes": c} if "classes" in results.levels else {}
        samples = gain(results, {"method": first, **place}, {"method": second, **place}, key)
        paper = printed_gap(results.task, c, first, second)
        wanted = share_of_paper * paper if paper is not None and share_of_paper else limit
        text = f"{label(first)} − {label(second)}" + (f", #C={c}" if place or paper is not None else "")
        parts.append(Part(text, samples, "above", wanted, unit, paper))
    return parts


def spread(results: Results, key: str, cell: Mapping[str, str], scale: float = 100, digits: int = 2) -> str:
    """'82.91 ±0.31' over the seeds."""
    values = [scale * value for value in results.by_seed(key, **cell).values()]
    if not values:
        return "–"
    text = f"{mean(values):.{digits}f}"
    return text if len(values) == 1 else f"{text} ±{stdev(values):.{digits}f}"


def interval_picture(name: str, title: str, x_label: str, parts: Sequence[Part]) -> list[Picture]:
    """The intervals behind a verdict as a picture; none where nothing was run."""
    estimates = []
    for part in parts:
        found = interval(list(part.samples.values()))
        if found.count:
            colour = PALETTE[0] if found.low > 0 else PALETTE[1] if found.high < 0 else "#777777"
            estimates.append(Estimate(part.label, found.mean, found.low, found.high, colour, part.paper))
    return [IntervalPicture(name, title, x_label, estimates)] if estimates else []


def warning_of(results: Results) -> str:
    """What the titles of quick results begin with."""
    return "QUICK, proves nothing · " if results.quick else ""


def title_of(results: Results, text: str) -> str:
    """A picture's title: what, on which task, how long, over how many seeds, and the warning of --quick."""
    warning = warning_of(results)
    lengths = {run.figures.get("iterations") for run in results.runs}
    length = lengths.pop() if len(lengths) == 1 else None
    about = [*([results.task] if results.task else []), *([f"{length:,} iterations"] if length else [])]
    seeds = results.seeds_in_words()
    about.append("one seed" if seeds == "1 seed" else f"mean of {seeds}")
    return f"{warning}{text}: {', '.join(about)}"


def curve(runs: Sequence[Run], y: str, scale: float = 1.0) -> tuple[list[float], list[float]]:
    x, values = mean_curves(runs, y)
    return x.tolist(), (scale * values).tolist()

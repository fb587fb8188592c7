"""`gammafl pareto`: which method needs the fewest bytes for an accuracy? Each method runs at several kept fractions.

A point is a method at one kept fraction, with its accuracy and its measured bytes over the seeds. A point is dominated
if another one is at least as accurate, takes at most as many bytes, and is better in one of the two. A point is within
x percentage points of FedAVG if the paired difference shows it at the 5% level, after Holm's correction for all points.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gammafl.core.errors import require
from gammafl.experiments.claims import FAILS, HOLDS, OPEN, Place, lead
from gammafl.experiments.columns import READINGS, READINGS_NOTE, Column, GridTable, metric_name, size, spread
from gammafl.experiments.compare import method_settings, task_level
from gammafl.experiments.grid import TASK, Factor, Level, Study
from gammafl.experiments.intervals import CONFIDENCE, Interval, holm, p_value
from gammafl.experiments.labels import label
from gammafl.experiments.levels import QUICK, USUALLY_QUICK
from gammafl.experiments.row_charts import title_of
from gammafl.experiments.rows import Key, Row, Rows, Samples
from gammafl.federated.units import show_bytes, show_duration
from gammafl.methods.registry import KEEPS, USUAL, entry_named, looks_of, split_expression
from gammafl.report.charts import Chart, Panel
from gammafl.report.lines import Axis, Line, lines_panel
from gammafl.report.tables import TextTable, times_less

DENSE, HALF = "fedavg", "fedavg:values=f16"
"""The references: FedAVG sends every entry, with 32 or with 16 bits per value."""
OWN = "its own"
"""The only level of a method that has no range of settings."""
WITHIN = 0.5
UP, DOWN = "uplink_bytes_per_client", "downlink_bytes_per_client"
ACCURACIES = {"last_mean": "last", "averaged": "averaged model"}


def both_ways(row: Row) -> float:
    """Bytes up and down of a client that takes part in every round."""
    return float(row.figures[UP]) + float(row.figures.get(DOWN) or 0)


SIZES: dict[str, tuple[Key, str, str]] = {
    "up": (UP, "sent by a client in every round (bytes)", "bytes up"),
    "down": (DOWN, "received by a client in every round (bytes)", "bytes down"),
    "both": (both_ways, "sent and received by a client in every round (bytes)", "bytes both ways"),
    "seconds": ("link_seconds", "seconds on the link", "seconds"),
}
"""What a point costs: key → figure, label of the axis, word on the button."""


def levels_of(method: str, keeps: Sequence[float] = ()) -> list[Level]:
    """The levels at which a method runs: `keeps`, or the range of the first setting on its card, or `OWN` without one.

    A setting that the method's expression fixes is not varied.

    >>> [level.name for level in levels_of("top-k")], [level.name for level in levels_of("top-k:k=50")]
    (['0.001', '0.003', '0.01', '0.03'], ['its own'])
    """
    entry, fixed = entry_named(method), split_expression(method)[1].keys()
    ranges = {"keep": KEEPS} if entry.has("keep", 0.01) and not entry.ranges else entry.ranges
    setting, values = next(iter(ranges.items()), ("", ()))
    if setting in fixed or (setting == "keep" and "k" in fixed) or not values:
        return [Level(OWN)]
    if setting == "keep":
        kept = sorted({float(keep) for keep in keeps or values})  # type: ignore[arg-type]
        return [Level(f"{keep:g}", {"keep": keep}) for keep in kept]
    return [Level(f"{setting}={value}", {"compression": {setting: value}}) for value in values]


def pareto(base: Mapping[str, Any], methods: Sequence[str], keeps: Sequence[float] = ()) -> Study:
    """The study of `methods`, each over its range, on the configuration `base`, which names the task.

    `keeps` replaces the kept fractions on the cards of all methods that have one. FedAVG is always in the study.
    """
    for keep in keeps:
        require(0 < keep <= 1, f"--keep takes fractions above 0 and up to 1, got {keep:g}")
    chosen = list(dict.fromkeys([*(methods or [name for name in USUAL if name != DENSE]), DENSE, HALF]))
    task = replace(task_level(base), quick=QUICK.get(base["task"], {}))
    ranges = {method: levels_of(method, keeps) for method in chosen}
    quick = dict.fromkeys(level.name for own in ranges.values() for level in (own[0], own[-1]))
    levels = {level.name: level for own in ranges.values() for level in own}
    places = {(method, level.name) for method, own in ranges.items() for level in own}
    return replace(
        PARETO,
        factors=(
            Factor(TASK, (task,)),
            Factor("method", tuple(Level(m, method_settings(base, m, chosen)) for m in chosen)),
            Factor("keep", tuple(sorted(levels.values(), key=_order)), quick=tuple(quick)),
        ),
        where=lambda cell: (cell["method"], cell["keep"]) in places,
    )


def _order(level: Level) -> tuple[int, float]:
    """The sort key of a level: kept fractions come first, then other settings, then `OWN`."""
    kept = float(level.settings["keep"]) if "keep" in level.settings else 0.0
    return (2 if level.name == OWN else 1 if not kept else 0, kept)


def setting_of(level: str) -> str:
    """The setting of a level, such as 'keep=0.01' or 'clip=2.5'; empty for `OWN`."""
    return "" if level == OWN else level if "=" in level else f"keep={level}"


def named(cell: Place) -> str:
    """The name of a point, such as 'Top-k, keep=0.01'."""
    return ", ".join(filter(None, (label(cell["method"]), setting_of(cell["keep"]))))


@dataclass(frozen=True)
class Point:
    """A method at one kept fraction: its sizes, its accuracy of one kind, and how far that is from FedAVG's."""

    cell: Place
    sizes: Mapping[str, float]
    reach: Interval
    gap: Samples
    """How much better it is than FedAVG, for each seed; in percentage points if the metric is accuracy."""

    @property
    def is_dense(self) -> bool:
        return self.cell["method"] == DENSE


def points(rows: Rows, accuracy: str) -> list[Point]:
    """All points of the grid whose runs have this kind of accuracy."""
    made = []
    for cell in rows.cells("method", "keep"):
        if values := rows.scale * rows.by_seed(accuracy, **cell):
            costs = {key: rows.by_seed(figure, **cell) for key, (figure, _, _) in SIZES.items()}
            sizes = {key: cost.mean for key, cost in costs.items() if any(cost.values())}
            gap = lead(rows, cell, {"method": DENSE, "keep": OWN}, accuracy)
            made.append(Point(cell, sizes, values.interval, gap))
    return made


def dominated(point: Point, others: Sequence[Point], size: str, higher_is_better: bool) -> bool:
    """Whether another point has at least this accuracy for at most this size, and is better in one of the two."""
    sign = 1 if higher_is_better else -1
    both = [other for other in others if size in other.sizes and size in point.sizes]
    gains = [(sign * (other.reach.mean - point.reach.mean), point.sizes[size] - other.sizes[size]) for other in both]
    return any(better >= 0 and cheaper >= 0 and (better > 0 or cheaper > 0) for better, cheaper in gains)


def judged(everything: Sequence[Point], within: float) -> list[tuple[Point, str, float]]:
    """For each point but FedAVG's: is it within `within` percentage points of FedAVG? With its corrected p-value."""
    candidates = [point for point in everything if not point.is_dense]
    inside = holm([p_value(point.gap.values(), -within, "above") for point in candidates])
    outside = holm([p_value(point.gap.values(), -within, "below") for point in candidates])
    limit = 1 - CONFIDENCE
    answers = [HOLDS if a < limit else FAILS if b < limit else OPEN for a, b in zip(inside, outside, strict=True)]
    return list(zip(candidates, answers, inside, strict=True))


def _within(rows: Rows) -> float:
    return float(rows.settings.get("within", WITHIN))


def fewest_bytes(accuracy: str, rows: Rows) -> TextTable | None:
    """The table of the cheapest point of each method that is near enough to FedAVG, cheapest method first."""
    everything = points(rows, accuracy)
    dense = next((point for point in everything if point.is_dense), None)
    candidates = judged(everything, _within(rows))
    if dense is None or not candidates:
        return None
    best: dict[str, list[str]] = {}
    passed = [(point, p) for point, answer, p in candidates if answer == HOLDS]
    for point, p in sorted(passed, key=lambda one: one[0].sizes["both"]):
        up, sizes = rows.by_seed(UP, **point.cell).interval, point.sizes
        shown = [label(point.cell["method"]), point.cell["keep"], point.gap.interval.text("+.2f"), f"{p:.2g}"]
        shown += [f"{show_bytes(up.mean)} [{show_bytes(max(0.0, up.low))}, {show_bytes(up.high)}]"]
        shown += [show_bytes(sizes["both"]), *(times_less(dense.sizes[key], sizes[key]) for key in ("up", "both"))]
        shown += [show_duration(sizes["seconds"])] if "seconds" in dense.sizes else []
        best.setdefault(point.cell["method"], shown)
    columns = ["method", "keep", f"− FedAVG, {rows.unit} [95%]", "p, Holm", "uplink [95%]", "both ways", "less up"]
    columns += ["less both", *(["seconds on the link"] if "seconds" in dense.sizes else [])]
    low, high = dense.reach.band
    none = [f"none at {100 * (1 - CONFIDENCE):.0f}%", *["–"] * (len(columns) - 2)]
    others = dict.fromkeys(point.cell["method"] for point, _, _ in candidates if point.cell["method"] not in best)
    return TextTable(
        f"fewest bytes within {_within(rows):g} {rows.unit} of FedAVG, {ACCURACIES[accuracy]}: {rows.task},"
        f" {rows.seeds_in_words()}",
        columns,
        [*best.values(), *([label(method), *none] for method in others)],
        "The difference is paired over seeds and judged by Student's t, with Holm's correction for"
        f" {len(candidates)} points. Less up and less both compare with FedAVG, which sends"
        f" {show_bytes(dense.sizes['up'])} and is at {dense.reach.mean:.2f} [{low:.2f}, {high:.2f}].",
    )


def _verdict(rows: Rows, cell: Place) -> str:
    """Whether one point is near enough to FedAVG, by its mean of the last evaluations."""
    known = judged(points(rows, "last_mean"), _within(rows))
    return next((answer for point, answer, _ in known if point.cell == cell), "–")


def _dominated(rows: Rows, cell: Place) -> str:
    everything = points(rows, "last_mean")
    own = next(point for point in everything if point.cell == cell)
    return "yes" if dominated(own, everything, "both", rows.higher_is_better) else "no"


def _panel(rows: Rows, accuracy: str) -> Panel | None:
    """A line for each method, from its smallest to its largest kept fraction. FedAVG's lines are horizontal."""
    everything = points(rows, accuracy)
    if not everything:
        return None
    sizes = [key for key in SIZES if all(key in point.sizes for point in everything)]
    least = {key: min(point.sizes[key] for point in everything) for key in sizes}
    lines = []
    for method, look in looks_of(list(rows.levels["method"])).items():
        if not (own := [point for point in everything if point.cell["method"] == method]):
            continue
        reference = len(own) == 1 and own[0].cell["keep"] == OWN  # a horizontal line to the only point
        drawn = [replace(own[0], sizes=least), *own] if reference else own
        bands = [point.reach.band for point in drawn]
        grey = {key: [dominated(p, everything, key, rows.higher_is_better) for p in own] for key in sizes}
        hints = [setting_of(point.cell["keep"]) or named(point.cell) for point in own]
        lines.append(
            Line(
                label(method),
                {key: [p.sizes[key] for p in drawn] for key in sizes} | {accuracy: [p.reach.mean for p in drawn]},
                *look,
                {accuracy: [low for low, _ in bands]},
                {accuracy: [high for _, high in bands]},
                muted={key: [False] * reference + flags for key, flags in grey.items()},
                hints=[""] * reference + hints,
            )
        )
    across = [Axis(key, SIZES[key][1], True, button=SIZES[key][2]) for key in sizes]
    shown = ACCURACIES[accuracy]
    up = Axis(accuracy, f"test {metric_name(rows, 'accuracy (%)')}, {shown}", button=shown)
    return lines_panel(f"{shown}; grey: dominated", lines, across, [up])


def _chart(rows: Rows) -> Chart | None:
    panels = [panel for accuracy in ACCURACIES if (panel := _panel(rows, accuracy))]
    text = "accuracy against measured bytes, band: 95% interval"
    return Chart("pareto", title_of(rows, text), panels) if panels else None


PARETO = Study(
    "pareto",
    "Accuracy against measured bytes",
    (Factor(TASK, ()), Factor("method", ()), Factor("keep", ())),
    tables=(
        *(partial(fewest_bytes, accuracy) for accuracy in ACCURACIES),
        GridTable(
            ("method", "keep"),
            (
                *READINGS,
                spread("kept_fraction", "kept %", 100, 3),
                size(UP, "uplink"),
                size(DOWN, "downlink"),
                Column("dominated", _dominated),
                Column(lambda rows: f"within {_within(rows):g} of FedAVG", _verdict),
            ),
            f"{READINGS_NOTE} Bytes are measured from encoded messages, for a client that takes part in every round."
            " Both verdicts are about the mean of the last evaluations: dominated compares the bytes of both ways,"
            " and within is decided at the 5% level after Holm's correction.",
            head="method",
            name=named,
            title=lambda rows: f"all points: {rows.task}, {rows.seeds_in_words()}",
        ),
    ),
    charts=(_chart,),
    quick=USUALLY_QUICK,
    seeds=(0, 1, 2, 3, 4),
    alone=True,
)
"""The tables and the chart of every such study. The function `pareto` gives it a grid."""

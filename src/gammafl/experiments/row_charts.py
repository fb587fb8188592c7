"""Charts over rows: intervals behind verdicts, mean curves with bands over seeds, and the curves of a whole grid."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from gammafl.experiments.claims import Claim, Place
from gammafl.experiments.columns import metric_name
from gammafl.experiments.intervals import interval
from gammafl.experiments.labels import label
from gammafl.experiments.rows import Row, Rows
from gammafl.methods.registry import looks_of, names
from gammafl.report.charts import Chart, Panel
from gammafl.report.estimates import Estimate, intervals_panel
from gammafl.report.lines import Axis, Line, lines_panel

ITERATIONS = Axis("iteration", "iterations", button="iterations")
SENT = Axis("sent_bytes", "sent so far by a client in every round (bytes)", log=True, button="bytes sent")
BOTH = Axis("both_bytes", "sent and received by a client in every round (bytes)", log=True, button="bytes both ways")
SECONDS = Axis("link_seconds", "seconds on the link", button="seconds")
LOSS = Axis("loss", "loss on the test set", button="loss")
KEPT = Axis("kept_fraction", "entries kept (%)", True, 100.0, "kept")
ERROR = Axis("error", "error", True, button="error")
IN_LEGEND = ("method", "curve", "run")
"""Factors whose levels are lines of one plot, if a study has them."""
MOST_LINES = 8
REACH = 3

MakeChart = Callable[[Rows], Chart | None]


def metric_axis(rows: Rows) -> Axis:
    name = metric_name(rows)
    per_cent = " (%)" if rows.unit == "points" else ""
    return Axis("metric", f"test {name}{per_cent}", name == "perplexity", rows.scale, name)


def title_of(rows: Rows, text: str) -> str:
    """A chart's title: what, on which task, how long, over how many seeds, and the warning of --quick."""
    lengths = {row.figures.get("iterations") for row in rows.finished}
    length = lengths.pop() if len(lengths) == 1 else None
    seeds = rows.seeds_in_words()
    over = "one seed" if seeds == "1 seed" else f"mean of {seeds}"
    about = [rows.about, f"{length:,} iterations" if length else "", over]
    return f"{warning_of(rows)}{text}: {', '.join(filter(None, about))}"


def warning_of(rows: Rows) -> str:
    """The beginning of the titles of quick results."""
    return "QUICK, proves nothing · " if rows.quick else ""


def intervals_of(name: str, text: str, x_label: str, claims: Sequence[Claim]) -> MakeChart:
    """A chart of the intervals behind the verdicts on claims about the metric; `{unit}` in the label is its unit.

    A part that several claims share, such as a lead that one claim calls large, is drawn once.
    """

    def chart(rows: Rows) -> Chart | None:
        asked = [part for claim in claims if claim.is_about(rows) for part in claim.parts(rows)]
        parts = {(part.label, tuple(part.values)): part for part in asked if part.unit == rows.unit}
        known = [(part, interval(part.values)) for part in parts.values() if part.values]
        estimates = [Estimate(part.label, found.mean, found.low, found.high, part.paper) for part, found in known]
        title = title_of(rows, text)
        panel = intervals_panel(title, x_label.format(unit=rows.unit), estimates)
        return Chart(name, title, [panel]) if estimates else None

    return chart


def mean_line(
    rows: Sequence[Row], name: str, colour: str = "", dash: str = "solid", place: Place | None = None
) -> Line:
    """The mean of these rows' curves, one row for each seed, with a band from the least to the largest value.

    Curves are cut to the length of the shortest.
    """
    keys = [key for key in (rows[0].curve if rows else ()) if all(key in row.curve for row in rows)]
    length = min((len(row.curve[key]) for row in rows for key in keys), default=0)
    tables = {key: np.array([row.curve[key][:length] for row in rows], float) for key in keys}
    banded = {key: table for key, table in tables.items() if len(rows) > 1 and key not in _ACROSS}
    return Line(
        name,
        {key: table.mean(axis=0).tolist() for key, table in tables.items()},
        colour,
        dash,
        {key: table.min(axis=0).tolist() for key, table in banded.items()},
        {key: table.max(axis=0).tolist() for key, table in banded.items()},
        place=place or {},
    )


_ACROSS = {axis.key for axis in (ITERATIONS, SENT, BOTH, SECONDS)}


def training_chart(name: str, text: str) -> MakeChart:
    """A chart of every method's metric against iterations and against the bytes sent.

    If the downlink is compressed, a panel shows the bytes of both ways. If there is a link, a panel shows seconds.
    Lines and bands are moving averages, because a single model depends on the clients of its last round.
    """

    def chart(rows: Rows) -> Chart | None:
        lines = [smoothed(line) for line in lines_of(rows, "method")]
        axes = (ITERATIONS, SENT, *([BOTH] if compresses_down(rows) else []), SECONDS)
        across = [axis for axis in axes if _present(lines, axis)]
        panels = [lines_panel(f"against {axis.button}", lines, [axis], [metric_axis(rows)]) for axis in across]
        title = title_of(rows, f"{text}, moving average, band from the least to the most")
        return Chart(name, title, panels) if panels else None

    return chart


def compresses_down(rows: Rows) -> bool:
    """Whether some clients receive less than the whole model in a round."""
    sizes = [(row.figures.get("downlink_bytes_per_client") or 0, row.figures) for row in rows.finished]
    return any(0 < down < figures["dense_bytes_per_client"] for down, figures in sizes)


def smoothed(line: Line) -> Line:
    """A line whose metric is a moving average over up to 2·`REACH` + 1 points: as many after a point as before it."""

    def even(values: Sequence[float]) -> list[float]:
        reach = min(REACH, len(values) // 10)
        near = [min(i, len(values) - 1 - i, reach) for i in range(len(values))]
        return [float(np.mean(values[i - n : i + n + 1])) for i, n in enumerate(near)]

    values, low, high = (
        {key: even(column) if key == "metric" else column for key, column in source.items()}
        for source in (line.values, line.low, line.high)
    )
    return replace(line, values=values, low=low, high=high)


def lines_of(
    rows: Rows, factor: str, name: Callable[[str], str] = label, levels: Sequence[str] | None = None
) -> list[Line]:
    """The mean curve of each level of a factor, or of these `levels`, that has runs."""
    return [
        mean_line(found, name(level), *_own_look(rows, factor, level))
        for level in (rows.levels[factor] if levels is None else levels)
        if (found := rows.pick(**{factor: level}))
    ]


def _own_look(rows: Rows, factor: str, level: str) -> tuple[str, str]:
    """Colour and dash of a level: its own if it has the name of a method, else the palette's."""
    if factor == "method" or level in names():
        return looks_of(list(rows.levels[factor]))[level]
    return "", "solid"


def _called(factor: str, level: str) -> str:
    """A level's label: 'HT', or 'classes 2', because levels of most factors need the factor's name."""
    return level if factor == "run" else label(level) if factor in IN_LEGEND else f"{factor} {level}"


def curves_panel(rows: Rows) -> Panel | None:
    """A panel with the mean curve of each place of the grid, where the reader chooses axes; None without curves."""
    with_curves = [row for row in rows.finished if len(row.curve.get("iteration", ()))]
    used = {f: [x for x in levels if any(r.cell[f] == x for r in with_curves)] for f, levels in rows.levels.items()}
    factors = {factor: levels for factor, levels in used.items() if len(levels) > 1}
    menus = _menus(factors)
    lines = []
    for cell in rows.cells(*used):
        runs = [row for row in rows.pick(**cell) if row.curve.get("iteration")]
        if runs:
            free = {f: level for f, level in cell.items() if f in factors and f not in menus}
            words = [_called(f, level) for f, level in (free or cell).items() if f != "task"]
            compared = next((f for f in IN_LEGEND if f in cell), "")
            look = _own_look(rows, compared, cell[compared]) if compared else ("", "solid")
            lines.append(mean_line(runs, ", ".join(words) or "run", *look, {f: cell[f] for f in menus}))
    across = [axis for axis in (ITERATIONS, SENT, BOTH, SECONDS) if _present(lines, axis)]
    up = [axis for axis in (metric_axis(rows), LOSS, KEPT, ERROR) if _present(lines, axis)]
    if not across or not up:
        return None
    return lines_panel("Training curves: mean over seeds, band from least to most", lines, across, up, menus, wide=True)


def _menus(factors: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """The factors with a menu, which shows one of their levels at a time.

    There are as few as `MOST_LINES` allows. Factors of the legend have no menu.
    """
    menus: dict[str, Sequence[str]] = {}
    count = math.prod(len(levels) for levels in factors.values())
    for factor in reversed([factor for factor in factors if factor not in IN_LEGEND]):
        if count > MOST_LINES:
            count //= len(factors[factor])
            menus[factor] = factors[factor]
    return dict(reversed(menus.items()))


def _present(lines: Sequence[Line], axis: Axis) -> bool:
    return any(math.isfinite(value) for line in lines for value in line.values.get(axis.key, ()))

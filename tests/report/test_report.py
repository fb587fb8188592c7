"""Tables, charts and progress say what the numbers are."""

import io
import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.progress import Progress as RichProgress
from rich.progress import TextColumn

from gammafl.experiments.compare import COMPARE
from gammafl.experiments.rows import Rows, training_row
from gammafl.federated.records import RoundRecord, Summary
from gammafl.federated.units import show_bytes
from gammafl.report.charts import Chart, printed, save
from gammafl.report.estimates import Estimate, HeatCell, heat_map_panel, intervals_panel
from gammafl.report.lines import Axis, Line, coloured, lines_panel, spread
from gammafl.report.tables import TextTable
from gammafl.runs.progress import Bars, JsonLines, Lines, Status, show_progress


def status(round_number: int, evaluated: bool = True) -> Status:
    return Status("γ-FedHT seed 0", round_number, 200, "accuracy", 0.8123, 0.0153, 1_530_000, evaluated)


def summary(method: str, seed: int, last: float, uplink: float, evaluations: int | None = 100) -> Summary:
    return Summary(
        task="logistic-mini",
        method=method,
        seed=seed,
        dim=1000,
        iterations=100,
        rounds=20,
        clients=10,
        participants=5,
        metric="accuracy",
        final=last,
        last_mean=last,
        last_count=30,
        best=last + 0.01,
        evaluations=evaluations,
        averaged=None,
        final_loss=1 - last,
        averaged_loss=None,
        kept_fraction=0.01,
        kept_per_upload=10.0,
        uplink_bytes=int(5 * uplink),
        uplink_bytes_per_client=uplink,
        value_bytes_per_client=uplink,
        dense_bytes_per_client=999,
        refused_uploads=0,
        missing_uploads=0,
        wall_seconds=1.0,
    )


def compared(*summaries: Summary) -> TextTable:
    """The table of `gammafl compare`."""
    rows = [
        training_row("", {"task": "logistic-mini", "method": s.method}, s, [RoundRecord.model_validate(ROUND)])
        for s in summaries
    ]
    levels = {"task": ["logistic-mini"], "method": list(dict.fromkeys(s.method for s in summaries))}
    table = COMPARE.tables[0](Rows("compare", levels, rows))
    assert table is not None
    return table


ROUND = {
    "round": 1, "iteration": 5, "participants": [0], "train_loss": 1.0, "kept": 1, "uplink_bytes": 8,
    "metric": 0.5, "loss": 1.0,
}  # fmt: skip


def test_a_comparison_shows_mean_and_spread_and_how_much_less_than_fedavg_was_sent() -> None:
    table = compared(summary("fedavg", 0, 0.9, 1000), summary("ht", 0, 0.80, 40), summary("ht", 1, 0.84, 60))
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["HT"] == ["82.00% ±2.83", "82.00% ±2.83", "83.00% ±2.83", "–", "1.00%", "50 B", "20.0×"]
    assert rows["FedAVG"][0] == "90.00%"


@pytest.mark.parametrize(
    ("counts", "words"), [([100, 100], "best of 100"), ([40, 100], "best of 40 to 100"), ([100, None], "best")]
)
def test_the_best_is_shown_with_the_number_of_looks_and_how_it_was_picked(counts: list[int | None], words: str) -> None:
    table = compared(*(summary("ht", seed, 0.8, 40, count) for seed, count in enumerate(counts)))
    assert table.columns[3] == words
    assert "picked on the test set" in table.note


def test_markdown_has_a_line_a_row() -> None:
    lines = TextTable("title", ["a", "b"], [["1", "2"], ["3", "4"]]).markdown().splitlines()
    assert lines == ["**title**", "", "| a | b |", "|---|---:|", "| 1 | 2 |", "| 3 | 4 |"]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (1.5e6, "1.50 MB"), (2e12, "2.00 TB")]
)
def test_bytes_are_in_decimal_units(count: float, text: str) -> None:
    assert show_bytes(count) == text


def test_plain_lines_are_about_twenty_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines()
    for i in range(1, 201):
        lines.update(status(i))
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 20
    assert out[-1] == "γ-FedHT seed 0: round 200/200  accuracy 81.23%  kept 1.53%  sent 1.53 MB"


def test_json_lines_are_one_an_evaluation(capsys: pytest.CaptureFixture[str]) -> None:
    json_lines = JsonLines()
    json_lines.update(status(1, evaluated=False))
    json_lines.update(status(2))
    json_lines.say("for people")
    captured = capsys.readouterr()
    assert [json.loads(line)["round"] for line in captured.out.splitlines()] == [2]
    assert captured.err == "for people\n"


def test_a_bar_shows_metric_kept_fraction_and_bytes() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=120)
    with RichProgress(TextColumn("{task.description}"), TextColumn("{task.fields[text]}"), console=console) as bars:
        Bars(bars).update(status(100))
    assert "accuracy 81.23%  kept 1.53%  sent 1.53 MB" in stream.getvalue()


@pytest.mark.parametrize("width", [80, 100, 130])
def test_on_a_narrow_terminal_a_long_name_leaves_room_for_the_count_the_metric_and_the_time(width: int) -> None:
    stream = io.StringIO()
    bars = Bars.on(Console(file=stream, force_terminal=True, width=width, color_system=None))
    with bars.bars:
        bars.update(replace(status(100), run="logistic-mini-gamma-fedht-q-iterations6000-seed0"))
        bars.bars.refresh()
        line = stream.getvalue().splitlines()[-1]
    for needed in ("gamma-fedht-q-iterations6000-seed0", "100/200", "accuracy", "-:--"):
        assert needed in line


def test_a_notebook_shows_one_bar_a_run_that_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    display = pytest.importorskip("IPython.display")
    shown: list[dict[str, str]] = []

    class Handle:
        def update(self, data: dict[str, str], raw: bool) -> None:
            shown[-1] = data

    def displayed(data: dict[str, str], raw: bool, display_id: bool) -> Handle:
        shown.append(data)
        return Handle()

    monkeypatch.setattr(display, "display", displayed)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    with show_progress() as progress:
        for i in range(1, 201):
            progress.update(status(i))
    assert [data["text/plain"] for data in shown] == [
        "γ-FedHT seed 0: round 200/200  accuracy 81.23%  kept 1.53%  sent 1.53 MB"
    ]
    assert '<progress value="200" max="200">' in shown[0]["text/html"]


def test_a_message_is_shown_as_it_is_whatever_brackets_are_in_it() -> None:
    stream = io.StringIO()
    Bars(RichProgress(console=Console(file=stream, width=200))).say("data: from /data/[old]/[/mnt]/x")
    assert stream.getvalue() == "data: from /data/[old]/[/mnt]/x\n"


ITERATIONS, SENT = Axis("t", "iterations"), Axis("sent", "bytes", log=True)
METRIC = Axis("metric", "accuracy (%)", scale=100.0)
values = st.lists(st.one_of(st.floats(0.01, 1.0), st.just(math.nan)), min_size=1, max_size=40)


def line(label: str, y: list[float], **look: Any) -> Line:
    steps = range(1, len(y) + 1)
    return Line(label, {"t": [5.0 * i for i in steps], "sent": [9.0 * i for i in steps], "metric": y}, **look)


@settings(max_examples=30)
@given(st.lists(values, min_size=1, max_size=3))
def test_a_chart_has_every_number_and_every_line_has_its_name_at_its_end(both: list[list[float]]) -> None:
    lines = [line(f"line {i}", y) for i, y in enumerate(both)]
    panel = lines_panel("", lines, [ITERATIONS], [METRIC])
    points = panel.data
    assert len(points) == sum(map(len, both))
    for i, y in enumerate(both):
        shown = [point["metric"] for point in points if point["line"] == f"line {i}"]
        assert [v is None for v in shown] == [math.isnan(v) for v in y]
        assert all(v is None or v == pytest.approx(100 * w, rel=1e-4) for v, w in zip(shown, y, strict=True))
    named = {end["line"] for end in ends_of(panel.views[0].spec)}
    assert named == {f"line {i}" for i, y in enumerate(both) if not all(map(math.isnan, y))}


def ends_of(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """The data of the names at the ends of lines."""
    [text] = [layer for layer in spec["layer"] if layer["mark"]["type"] == "text"]
    return list(text["data"]["values"])


@settings(deadline=None)
@given(st.lists(st.floats(0.2, 0.9), min_size=2, max_size=30))
def test_names_of_lines_do_not_overlap_and_stay_beside_the_plot(last: list[float]) -> None:
    lines = [line(f"line {i}", [0.1, value]) for i, value in enumerate(last)]
    spec = lines_panel("", lines, [ITERATIONS], [METRIC]).views[0].spec
    pixel = 100 * (max(last) - 0.1) / spec["height"]
    names = sorted(end["metric"] for end in ends_of(spec))
    assert all(above - below > 13 * pixel for below, above in pairwise(names))  # of letters of 11 pixels
    assert 10 - pixel < names[0] < names[-1] < 100 * max(last) + pixel


@given(st.lists(st.floats(0, 1), max_size=9))
def test_names_with_room_enough_stay_where_they_are_and_others_keep_their_order(heights: list[float]) -> None:
    moved = spread(heights, 0.1)
    assert [sorted(moved).index(height) for height in moved] == list(np.argsort(np.argsort(heights, kind="stable")))
    apart = [0.05 + 0.101 * i for i in range(len(heights))]
    assert spread(apart, 0.1) == pytest.approx(apart)


def test_lines_keep_their_own_colours_where_these_tell_them_apart_and_others_get_free_ones() -> None:
    own, new = coloured([line("a", [1.0], colour="#0072B2"), line("b", [1.0])])
    assert own.colour == "#0072B2"
    assert new.colour != "#0072B2"
    looks = {(one.colour, one.dash) for one in coloured([line(str(i), [1.0], colour="#0072B2") for i in range(20)])}
    assert len(looks) == 20


def test_a_point_without_neighbours_is_marked_and_so_is_each_of_a_few() -> None:
    alone = lines_panel("", [line("a", [*[0.5] * 20, math.nan, 0.5, math.nan])], [ITERATIONS], [METRIC])
    assert [point["t"] for point in alone.data if point["dot"]] == [110.0]
    few = lines_panel("", [line("a", [0.5] * 3)], [ITERATIONS], [METRIC])
    assert all(point["dot"] for point in few.data)


def test_the_same_chart_gives_the_same_files_and_nothing_of_a_reader_is_printed(tmp_path: Path) -> None:
    lines = [line("HT", [0.2, 0.5]), line("FedAVG", [0.3, 0.6], dash="dash")]
    panels = [lines_panel(axis.label, lines, [axis], [METRIC]) for axis in (ITERATIONS, SENT)]
    estimates = [Estimate("a − b", 0.5, 0.1, 0.9, 1.0), Estimate("one seed", 0.5, -math.inf, math.inf)]
    grid = [HeatCell("r", "a", 1.0, "*"), HeatCell("r", "b", math.nan, "")]
    charts = [
        Chart("lines", "title", panels),
        Chart("intervals", "title", [intervals_panel("", "points", estimates)]),
        Chart("maps", "title", [heat_map_panel("map", "points", grid)]),
    ]
    for chart in charts:
        files = {path: path.read_bytes() for path in save(chart, tmp_path)}
        assert [path.name for path in files] == [f"{chart.name}.png", f"{chart.name}.svg"]
        assert next(iter(files.values())).startswith(b"\x89PNG")
        assert {path: path.read_bytes() for path in save(chart, tmp_path)} == files
        layers = [layer for panel in printed(chart)["concat"] for layer in panel["layer"]]
        assert all(layer.get("name") != "hover" for layer in layers)
    assert "HT" in (tmp_path / "lines.svg").read_text()


def test_a_chart_says_in_words_what_it_shows() -> None:
    panel = lines_panel("", [line("HT", [0.2, 0.5])], [ITERATIONS], [METRIC])
    assert panel.words == "accuracy (%) against iterations; at the end: HT 50"
    assert "a − b 0.5 [0.1, 0.9]" in intervals_panel("", "points", [Estimate("a − b", 0.5, 0.1, 0.9)]).words


def test_a_table_shows_every_cell_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Words in brackets are not taken for markup."""
    TextTable("[title]", ["[column]", "b"], [["x [one seed]", "[bold]y"]], "[note]").print()
    shown = capsys.readouterr().out
    for text in ("[title]", "[column]", "[one seed]", "[bold]y", "[note]"):
        assert text in shown

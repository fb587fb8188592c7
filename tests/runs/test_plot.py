"""What a result shows in a notebook: a table, and a picture of the run that needs no network."""

import sys
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

import gammafl as gf
from gammafl.core.errors import InputError
from gammafl.report.charts import Chart, Panel, printed
from gammafl.report.run_chart import run_chart
from gammafl.runs.simulate import Result
from tests.runs.test_simulate_out import simulated


@pytest.fixture(scope="module")
def result() -> Result:
    return simulated(None, name="<mine>")


def test_the_chart_has_a_point_for_each_evaluation(result: Result) -> None:
    chart = run_chart(result.summary, result.rounds)
    sent = list(accumulate(record.uplink_bytes for record in result.rounds))
    evaluated = [record for record in result.rounds if record.metric is not None]
    points = [(record.iteration, sent[record.round - 1], 100 * (record.metric or 0)) for record in evaluated]
    for panel in chart.panels:
        shown = [point for point in points_of(panel) if point["line"] == "model"]
        assert len(shown) == len(points)
        for point, (iteration, size, metric) in zip(shown, points, strict=True):
            key = "iteration" if "iteration" in point else "sent_bytes"
            assert point[key] == pytest.approx(iteration if key == "iteration" else size, rel=1e-4)
            assert point["metric"] == pytest.approx(metric, rel=1e-4)
        assert {point["line"] for point in points_of(panel)} == {"model", "averaged model"}


def points_of(panel: Panel) -> list[dict[str, Any]]:
    """What its lines are drawn from, as it is printed."""
    found: list[list[dict[str, Any]]] = []

    def walk(part: Any) -> None:
        if isinstance(part, dict):
            values = part.get("values")
            if isinstance(values, list) and values and isinstance(values[0], dict) and "part" in values[0]:
                found.append(values)
            part = list(part.values())
        for one in part if isinstance(part, list) else ():
            walk(one)

    walk(printed(Chart("panel", "", [panel])))
    return found[0]


def test_it_is_an_altair_chart_that_a_notebook_shows_and_that_can_be_saved(result: Result, tmp_path: Path) -> None:
    chart = result.plot()
    bundle = chart._repr_mimebundle_()
    assert any(kind.startswith(("text/html", "application/vnd.vegalite")) for kind in bundle)
    chart.save(str(tmp_path / "run.png"))
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


def test_a_missing_library_is_told_with_its_extra(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(InputError, match=r"needs vl_convert, which is not installed: pip install 'gammafl\[report\]'"):
        result.plot()


def test_result_and_summary_are_tables_in_a_notebook(result: Result) -> None:
    for shown in (result._repr_html_(), result.summary._repr_html_()):
        assert "<th>task</th><td>&lt;mine&gt;</td>" in shown
        assert f"<td>{100 * result.summary.final:.2f}%</td>" in shown


def test_a_run_whose_models_are_not_averaged_has_one_line() -> None:
    result = simulated(None, averaging="none", method=gf.fedavg())
    chart = run_chart(result.summary, result.rounds)
    assert isinstance(chart, Chart)
    assert {point["line"] for panel in chart.panels for point in points_of(panel)} == {"model"}

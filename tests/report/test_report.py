"""Tables, pictures and progress say what the numbers are."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from rich.progress import Progress as RichProgress
from rich.progress import TextColumn

from gammafl.report.plots import mean_curve, moving_average, plot_comparison
from gammafl.report.progress import Bars, JsonLines, Lines, Status, show_bytes
from gammafl.report.tables import TextTable, comparison_table


def status(round_number: int, evaluated: bool = True) -> Status:
    return Status("γ-FedHT seed 0", round_number, 200, "accuracy", 0.8123, 0.0153, 1_530_000, evaluated)


def summary(method: str, seed: int, last: float, uplink: float) -> dict[str, Any]:
    common = {"metric": "accuracy", "averaged": None, "last_count": 30, "iterations": 100, "kept_fraction": 0.01}
    numbers = {"last_mean": last, "final": last, "uplink_bytes_per_client": uplink, "dense_bytes_per_client": 999}
    return {"method": method, "seed": seed, **common, **numbers}


def test_a_comparison_shows_mean_and_spread_and_how_much_less_than_fedavg_was_sent() -> None:
    runs = [summary("fedavg", 0, 0.9, 1000), summary("ht", 0, 0.80, 40), summary("ht", 1, 0.84, 60)]
    rows = {row[0]: row[1:] for row in comparison_table("t", runs).rows}
    assert rows["HT"] == ["82.00% ±2.83", "82.00% ±2.83", "–", "1.00%", "50 B", "20.0×"]
    assert rows["FedAVG"][0] == "90.00%"


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


def records(scale: float) -> list[dict[str, Any]]:
    made = []
    for r in range(1, 31):
        record: dict[str, Any] = {"round": r, "iteration": 5 * r, "participants": [0, 1], "uplink_bytes": 20 * r}
        made.append(record | ({"metric": scale * r} if r % 3 == 0 else {}))
    return made


def test_a_message_is_shown_as_it_is_whatever_brackets_are_in_it() -> None:
    stream = io.StringIO()
    Bars(RichProgress(console=Console(file=stream, width=200))).say("data: from /data/[old]/[/mnt]/x")
    assert stream.getvalue() == "data: from /data/[old]/[/mnt]/x\n"


def test_a_curve_is_at_the_evaluations_with_the_bytes_a_participant_sent_so_far() -> None:
    iterations, sent, values = mean_curve([records(0.01), records(0.03)])
    np.testing.assert_array_equal(iterations, 15 * np.arange(1, 11))
    np.testing.assert_allclose(values, 0.02 * 3 * np.arange(1, 11))
    np.testing.assert_allclose(sent, [sum(10 * r for r in range(1, 3 * i + 1)) for i in range(1, 11)])


def test_a_moving_average_leaves_a_line_of_constants_as_it_is() -> None:
    for length in (1, 5, 100):
        np.testing.assert_allclose(moving_average(np.full(length, 3.0)), 3.0)


@pytest.mark.parametrize(("metric", "scale"), [("accuracy", 0.02), ("perplexity", 100.0)])
def test_a_picture_is_drawn_for_either_metric(metric: str, scale: float, tmp_path: Path) -> None:
    plot_comparison({"ht": [records(scale)], "fedavg": [records(scale)]}, metric, "title", tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_a_table_shows_every_cell_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Words in brackets are not taken for markup."""
    TextTable("[title]", ["[column]", "b"], [["x [one seed]", "[bold]y"]], "[note]").print()
    shown = capsys.readouterr().out
    for text in ("[title]", "[column]", "[one seed]", "[bold]y", "[note]"):
        assert text in shown

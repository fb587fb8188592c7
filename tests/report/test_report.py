"""Tables, pictures and progress say what the numbers are."""

import io
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from gammafl.report.plots import SMOOTHING, comparison_figure, evened, mean_curve, moving_average, plot_comparison
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.lines import Line2D
from rich.console import Console
from rich.progress import Progress as RichProgress
from rich.progress import TextColumn

from gammafl.federated.records import RoundRecord, Summary
from gammafl.federated.units import show_bytes
from gammafl.report.tables import TextTable, comparison_table
from gammafl.runs.progress import Bars, JsonLines, Lines, Status


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


def test_a_comparison_shows_mean_and_spread_and_how_much_less_than_fedavg_was_sent() -> None:
    runs = [summary("fedavg", 0, 0.9, 1000), summary("ht", 0, 0.80, 40), summary("ht", 1, 0.84, 60)]
    rows = {row[0]: row[1:] for row in comparison_table("t", runs).rows}
    assert rows["HT"] == ["82.00% ±2.83", "82.00% ±2.83", "83.00% ±2.83", "–", "1.00%", "50 B", "20.0×"]
    assert rows["FedAVG"][0] == "90.00%"


@pytest.mark.parametrize(
    ("counts", "words"), [([100, 100], "best of 100"), ([40, 100], "best of 40 to 100"), ([100, None], "best")]
)
def test_the_best_is_shown_with_the_number_of_looks_and_how_it_was_picked(counts: list[int | None], words: str) -> None:
    runs = [summary("ht", seed, 0.8, 40, count) for seed, count in enumerate(counts)]
    table = comparison_table("t", runs)
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


def record(r: int, participants: list[int], uplink_bytes: int, metric: float | None) -> RoundRecord:
    loss = None if metric is None else 1.0
    return RoundRecord(
        round=r, iteration=5 * r, participants=participants, train_loss=1.0, kept=1, uplink_bytes=uplink_bytes,
        loss=loss, metric=metric,
    )  # fmt: skip


def records(scale: float) -> list[RoundRecord]:
    return [record(r, [0, 1], 20 * r, scale * r if r % 3 == 0 else None) for r in range(1, 31)]


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


measured = st.floats(0.01, 1.0)


@given(st.lists(measured, min_size=1, max_size=200))
def test_a_moving_average_lies_among_the_evaluations_of_a_tenth_of_the_run_to_either_side(metrics: list[float]) -> None:
    values = np.array(metrics)
    smooth, near = moving_average(values), min(SMOOTHING // 2, len(values) // 10)
    assert smooth[0] == values[0]
    for i, value in enumerate(smooth):
        around = values[max(0, i - near) : i + near + 1]
        assert around.min() - 1e-12 <= value <= around.max() + 1e-12


def test_where_evaluations_are_denser_the_bold_lines_have_their_means_and_are_as_smooth_as_elsewhere() -> None:
    coarse, dense = [20 * i for i in range(1, 21)], [20 * i for i in range(1, 17)] + [320 + 2 * i for i in range(1, 41)]
    curve = {len(at): (np.array(at, float), 3.0 * np.array(at), np.array(at, float) ** 2) for at in (coarse, dense)}
    for before, after in zip(curve[20], evened(*curve[20]), strict=True):
        np.testing.assert_array_equal(before, after)
    iterations, sent, values = evened(*curve[56])
    assert len(iterations) == 20
    np.testing.assert_array_equal(iterations[:16], coarse[:16])
    np.testing.assert_array_equal(sent, 3 * iterations)
    assert values[-1] == np.mean(np.array(dense[-10:]) ** 2)


def evaluated(metrics: list[float]) -> list[RoundRecord]:
    return [record(r, [0], 9 * r, metric) for r, metric in enumerate(metrics, 1)]


def drawn(line: Line2D) -> np.ndarray:
    return np.asarray(line.get_xydata())


curves = st.integers(1, 40).flatmap(
    lambda n: st.lists(st.lists(measured, min_size=n, max_size=n), min_size=2, max_size=2)
)


@settings(max_examples=15)
@given(curves, st.sampled_from(["accuracy", "perplexity", "loss"]))
def test_a_picture_shows_all_that_it_draws_and_every_evaluation(both: list[list[float]], metric: str) -> None:
    figure = comparison_figure({"ht": [evaluated(both[0])], "fedavg": [evaluated(both[1])]}, metric, "title")
    try:
        for axes in figure.axes:
            (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
            for line in axes.lines:
                x, y = drawn(line).T
                assert left <= x.min() <= x.max() <= right
                assert bottom <= y.min() <= y.max() <= top
            shown = np.concatenate([drawn(line)[:, 1] for line in axes.lines])
            everything = np.concatenate(both) * (100 if metric == "accuracy" else 1)
            assert set(everything) <= set(shown)
    finally:
        plt.close(figure)


def test_of_a_short_run_the_bold_lines_are_its_evaluations_and_one_evaluation_can_be_seen() -> None:
    for count in (1, 2, 8):
        figure = comparison_figure({"ht": [evaluated([0.3 + 0.05 * i for i in range(count)])]}, "loss", "title")
        for axes in figure.axes:
            thin, bold = sorted(axes.lines, key=Line2D.get_linewidth)
            np.testing.assert_array_equal(drawn(bold), drawn(thin))
            assert bold.get_marker() == "o"
        plt.close(figure)


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

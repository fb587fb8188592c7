"""Which method needs the fewest bytes: points, who dominates whom, and who is within reach of FedAVG."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gammafl.experiments.claims import FAILS, HOLDS, OPEN
from gammafl.experiments.pareto import HALF, OWN, PARETO, fewest_bytes, judged, pareto, points
from gammafl.experiments.rows import Row, Rows
from gammafl.methods.registry import entry_named, looks_of, methods_in
from tests.test_cli import gammafl


def invented(gaps: dict[str, float], seeds: int = 5, **figures: float) -> Rows:
    """Top-k at some kept fractions (keep → points behind FedAVG), whose bytes are its kept fraction."""
    rows = []
    for seed in range(seeds):
        noise = np.random.default_rng(seed).normal(0, 0.01)
        own = np.random.default_rng(100 + seed).normal(0, 0.0003, len(gaps) + 2)
        cells = [("top-k", keep, 0.8 - gap / 100, 1e6 * float(keep)) for keep, gap in gaps.items()]
        cells += [("fedavg", OWN, 0.8, 1e6), (HALF, OWN, 0.8, 5e5)]
        for (method, keep, value, sent), more in zip(cells, own, strict=True):
            sizes = {"uplink_bytes_per_client": sent, "downlink_bytes_per_client": 1e6}
            accuracy = {"metric": "accuracy", "last_mean": value + noise + more, "averaged": value + noise + more}
            cell = {"task": "t", "method": method, "keep": keep}
            rows.append(Row("run", cell, seed, {**accuracy, **sizes, "kept_fraction": 0.1, **figures}))
    levels = {"task": ["t"], "method": ["top-k", "fedavg", HALF], "keep": [*gaps, OWN]}
    return Rows("pareto", levels, rows)


def verdict_of(rows: Rows, keep: str, within: float = 0.5) -> str:
    known = judged(points(rows, "last_mean"), within)
    return next(answer for point, answer, _ in known if point.cell["keep"] == keep)


def test_a_point_is_within_reach_if_the_paired_difference_says_so() -> None:
    rows = invented({"0.001": 3.0, "0.01": 0.1})
    assert verdict_of(rows, "0.01") == HOLDS
    assert verdict_of(rows, "0.001") == FAILS
    assert verdict_of(rows, "0.01", within=0.1) == OPEN
    assert verdict_of(invented({"0.001": 3.0, "0.01": 0.1}, seeds=1), "0.01") == OPEN


def test_the_more_points_the_more_it_takes() -> None:
    """Holm's correction is over all points of the grid."""
    gaps = {"0.01": 0.46}
    alone = [p for _, _, p in judged(points(invented(gaps), "last_mean"), 0.5)]
    many = invented(gaps | {f"0.0{i}": 3.0 for i in range(2, 9)})
    among = [p for _, _, p in judged(points(many, "last_mean"), 0.5)]
    assert len(among) == len(alone) + 7
    assert among[0] >= alone[0]


def test_the_table_has_for_each_method_the_fewest_bytes_within_reach_cheapest_first() -> None:
    table = fewest_bytes("last_mean", invented({"0.001": 3.0, "0.01": 0.1, "0.03": 0.0}))
    assert table is not None
    assert [row[:2] for row in table.rows] == [["Top-k", "0.01"], ["FedAVG, values=f16", OWN]]
    assert table.rows[0][table.columns.index("less up")] == "100.0×"
    assert "Holm's correction for 4 points" in table.note
    none = fewest_bytes("last_mean", invented({"0.001": 3.0}))
    assert none is not None
    assert none.rows[-1][:2] == ["Top-k", "none at 5%"]


def test_a_dominated_point_is_grey_and_no_other() -> None:
    """Keeping 3% is less accurate than keeping 1%, for more bytes."""
    chart = PARETO.charts[0](invented({"0.001": 3.0, "0.01": 0.1, "0.03": 1.0}))
    assert chart is not None
    grey = [p["hint"] for p in chart.panels[0].data if p["line"] == "Top-k" and p["muted_up"]]
    assert grey == ["keep=0.03"]


def test_bytes_up_down_and_both_ways_can_be_chosen_and_seconds_where_there_is_a_link() -> None:
    gaps = {"0.01": 0.1}
    cases: list[tuple[dict[str, Any], int]] = [({}, 3), ({"link_seconds": 7.0}, 4)]
    for figures, buttons in cases:
        chart = PARETO.charts[0](invented(gaps, **figures))
        assert chart is not None
        assert [panel.title.partition(";")[0] for panel in chart.panels] == ["last", "averaged model"]
        assert [view.buttons[0] for view in chart.panels[0].views] == [
            "bytes up", "bytes down", "bytes both ways", "seconds",
        ][:buttons]  # fmt: skip


def test_methods_without_a_kept_fraction_are_run_once_and_fedavg_is_always_there() -> None:
    study = pareto({"task": "logistic-mini"}, ["top-k", "top-k:k=50"], [0.01, 0.1])
    cells = [(dict(t.cell)["method"], dict(t.cell)["keep"]) for t in study.trials((0,))]
    assert cells == [
        ("top-k", "0.01"), ("top-k", "0.1"), ("top-k:k=50", OWN), ("fedavg", OWN), (HALF, OWN),
    ]  # fmt: skip


def test_every_method_goes_through_the_range_of_its_card() -> None:
    study = pareto({"task": "logistic-mini"}, ["stc", "terngrad", "terngrad:clip=1.0", "ef-sign"])
    cells = [(dict(t.cell)["method"], dict(t.cell)["keep"]) for t in study.trials((0,))]
    assert cells == [
        *(("stc", f"{keep:g}") for keep in entry_named("stc").ranges["keep"]),
        ("terngrad", "clip=0.0"), ("terngrad", "clip=2.5"), ("terngrad:clip=1.0", OWN), ("ef-sign", OWN),
        ("fedavg", OWN), (HALF, OWN),
    ]  # fmt: skip
    settings = {dict(t.cell)["keep"]: t.settings for t in study.trials((0,)) if dict(t.cell)["method"] == "terngrad"}
    assert settings["clip=2.5"]["compression"] == {"clip": 2.5}


def test_all_methods_are_on_one_grid_and_every_one_is_drawn_with_a_look_of_its_own() -> None:
    study = pareto({"task": "logistic-mini"}, methods_in("all"))
    methods = {dict(trial.cell)["method"] for trial in study.trials((0,))}
    assert methods == {*methods_in("all"), HALF}
    assert len(set(looks_of(sorted(methods)).values())) == len(methods)


def test_the_command_runs_judges_and_draws(in_tmp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = ["--methods", "top-k", "--keep", "0.01,0.1", "--jobs", "1", "--out", "p"]
    code, out, err = gammafl("pareto", "logistic-mini", "--quick", *tiny, capsys=capsys)
    assert (code, err) == (0, "")
    assert "fewest bytes within 0.5 points of FedAVG" in out
    rows: list[dict[str, Any]] = [json.loads(line) for line in (in_tmp / "p/rows.jsonl").read_text().splitlines()]
    assert len(rows) == 8
    sent = {row["method"]: row["uplink_bytes_per_client"] for row in rows}
    assert sent[HALF] < 0.6 * sent["fedavg"]
    assert {"pareto.png", "pareto.svg", "report.html", "tables.md"} <= {path.name for path in (in_tmp / "p").iterdir()}
    code, out, _ = gammafl("pareto", "logistic-mini", "--quick", *tiny, "--within", "3", capsys=capsys)
    assert "nothing to run" in out
    assert "within 3 points" in (in_tmp / "p/tables.md").read_text()


def test_a_setting_that_is_no_kept_fraction_is_gone_through_too(
    in_tmp: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = ["--methods", "terngrad", "--jobs", "1", "--seeds", "0", "--set", "iterations=10", "--out", "p"]
    code, _, err = gammafl("pareto", "logistic-mini", *tiny, capsys=capsys)
    assert (code, err) == (0, "")
    assert "TernGrad, clip=2.5" in Path("p/tables.md").read_text()
    rows = [json.loads(line) for line in (in_tmp / "p/rows.jsonl").read_text().splitlines()]
    sent = {row["keep"]: row["uplink_bytes_per_client"] for row in rows if row["method"] == "terngrad"}
    assert sent["clip=2.5"] > sent["clip=0.0"]  # a smaller s is drawn more often


@pytest.mark.parametrize(
    ("given", "said"),
    [("--keep 0.01,x", "--keep takes fractions"), ("--keep 2", "up to 1"), ("--set keep=0.1", "takes --keep")],
)
def test_a_mistake_is_one_line(given: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = gammafl("pareto", "logistic-mini", *given.split(), capsys=capsys)
    assert code == 2
    assert said in err
    assert err.count("\n") == 1

"""A page says what its directories say, whatever they hold, and nothing that they don't."""

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from gammafl.core.errors import InputError
from gammafl.experiments.claims import verdicts
from gammafl.experiments.pages import sections_of, write_page
from gammafl.experiments.store import QUICK_NOTE, load_rows
from gammafl.paper.catalogue import KNOWN
from gammafl.report import page as page_module
from tests.report.made import made_comparison, made_fig4, made_hostile, made_run, made_table3
from tests.runs.forging import DEEP
from tests.test_cli import gammafl


def written(*paths: Path) -> str:
    """The page of these directories, without Vega's own code."""
    out = paths[0].parent / "page.html"
    write_page(paths, out, KNOWN)
    return re.sub(r"<script>[^\n].*?</script>", "<script></script>", out.read_text(), count=1, flags=re.DOTALL)


def plots_in(html: str) -> list[dict[str, Any]]:
    found = re.search(r'<script type="application/json" id="plots">(.*?)</script>', html, re.DOTALL)
    assert found
    return list(json.loads(found[1]))


def points(plot: dict[str, Any]) -> list[dict[str, Any]]:
    return list(plot["data"])


def test_a_study_is_shown_with_every_claim_its_verdict_its_tables_and_its_settings(tmp_path: Path) -> None:
    html = unescape(written(made_table3(tmp_path / "s")))
    study, rows = load_rows(tmp_path / "s", KNOWN)
    judged = verdicts(study.claims, rows)
    assert len(judged) == 5
    for verdict in judged:
        shown = re.escape(verdict.claim.sentence) + r"</h4><p>\s*<span class=\"badge [^>]*>.*?" + verdict.answer
        assert re.search(shown, html, re.DOTALL)
        assert all(part.part.label in html for part in verdict.parts)
    table = study.tables[0](rows)
    assert table is not None
    assert all(cell in html for row in table.rows for cell in row)
    assert re.search(r'<td class="paper">\s*82.23\s*</td>', html)
    assert "batch_size = 7" in html
    assert "numpy " in html


def test_quick_results_say_that_they_prove_nothing_and_full_ones_do_not(tmp_path: Path) -> None:
    assert f'<p class="warning" role="note">{QUICK_NOTE}</p>' in written(made_table3(tmp_path / "quick"))
    assert QUICK_NOTE not in written(made_table3(tmp_path / "full", quick=False))


def test_nothing_in_a_file_becomes_markup_or_script(tmp_path: Path) -> None:
    html = written(made_hostile(tmp_path / "s"))
    assert html.count("<script") == html.count("</script>") == 3
    assert "<img" not in html
    assert "<script>alert" in plots_in(html)[-1]["legend"][-1]["name"]


def test_a_page_loads_nothing_and_holds_vega_once(tmp_path: Path) -> None:
    paths = [made_table3(tmp_path / "a"), made_fig4(tmp_path / "b"), made_comparison(tmp_path / "c")]
    html = written(*paths)
    assert not re.search(r"""(src|href)="(?!#)|url\(|@import|<link|<iframe""", html)
    assert "default-src 'none'" in html
    whole = (tmp_path / "page.html").read_text()
    assert whole.count("window.vegaEmbed=") == 1
    assert len(whole) < 2e6


def test_curves_can_be_seen_by_iterations_and_by_bytes_as_metric_loss_and_kept_fraction(tmp_path: Path) -> None:
    curves = plots_in(written(made_table3(tmp_path / "s")))[-1]
    buttons = [view["buttons"] for view in curves["views"]]
    assert buttons == [[y, x] for y in ("accuracy", "loss", "kept") for x in ("iterations", "bytes sent")]
    assert [one["name"] for one in curves["legend"]] == ["γ-FedHT", "HT", "Top-k", "Top-k per tensor", "FedAVG"]
    first = [point for point in points(curves) if (point["classes"], point["line"]) == ("2", "γ-FedHT")]
    assert first[0]["metric"] is None  # was not evaluated yet
    assert first[-1]["metric"] == pytest.approx(50.05)
    assert (first[-1]["metric_low"], first[-1]["metric_high"]) == (50.0, 50.1)
    menus = [param for param in curves["views"][0]["spec"]["params"] if "bind" in param]
    assert [(m["bind"]["options"], m["value"]) for m in menus] == [(["2", "3"], "2")]  # ten lines: too many


def test_a_heat_maps_colours_reach_as_far_as_its_values_with_zero_in_the_middle(tmp_path: Path) -> None:
    maps = [plot for plot in plots_in(written(made_fig4(tmp_path / "s"))) if "column" in plot["data"][0]]
    assert len(maps) == 2  # γ-FedHT against Top-k, γ-FedHT-Q against STC
    for one in maps:
        largest = max(abs(cell["value"]) for cell in one["data"] if cell["value"] is not None)
        assert one["views"][0]["spec"]["layer"][0]["encoding"]["color"]["scale"]["domain"] == [-largest, largest]
    assert maps[0]["data"][0]["text"].startswith("−1.00")


def test_runs_that_differ_in_the_seed_alone_are_one_curve(tmp_path: Path) -> None:
    runs = [made_run(tmp_path / f"r{seed}", seed=seed) for seed in (0, 1)]
    other = made_run(tmp_path / "r2", batch_size=7)
    [section] = sections_of([*runs, other], KNOWN)
    [panel] = section.panels
    labels = [label for label, _, _ in panel.legend]
    assert [label.partition(",")[0] for label in labels] == ["HT", "HT"]
    assert "batch_size 7" in labels[1]
    banded = {point["line"] for point in panel.data if "metric_low" in point}
    assert banded == {labels[0]}  # of two seeds


def test_a_run_that_is_not_finished_is_shown_as_far_as_it_went(tmp_path: Path) -> None:
    [section] = sections_of([made_run(tmp_path / "r", finished=False)], KNOWN)
    assert section.warning.startswith("1 of 1 runs are not finished")
    assert {view.buttons[0] for view in section.panels[0].views} == {"metric", "loss"}


def test_a_comparison_keeps_its_table(tmp_path: Path) -> None:
    [section] = sections_of([made_comparison(tmp_path / "c")], KNOWN)
    assert [row[0] for row in section.tables[0].rows] == ["γ-FedHT", "FedAVG"]
    assert [panel.title for panel in section.panels][:1] == ["against iterations"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"study": "table3"}', '{"study": "table3", "quick": true, "seed": 0, "run": ""}', DEEP],
    ids=range(6),
)  # fmt: skip
def test_damaged_rows_are_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(text)
    with pytest.raises(InputError, match=r"rows.jsonl is damaged or of another version"):
        sections_of([tmp_path], KNOWN)


@pytest.mark.parametrize("key", ["study", "quick", "task", "seed", "last_mean", "metric", "curves", "diverged"])
@pytest.mark.parametrize("wrong", [3, None, "x", [3], {"x": 3}, {"iteration": [1.0]}, {"iteration": "x"}], ids=str)
def test_rows_with_a_part_of_another_type_are_one_line_or_shown(key: str, wrong: Any, tmp_path: Path) -> None:
    file = made_table3(tmp_path) / "rows.jsonl"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([json.dumps(json.loads(lines[0]) | {key: wrong}), *lines[1:]]))
    try:
        write_page([tmp_path], tmp_path / "page.html", KNOWN)
    except InputError as error:
        reason = str(error)
    else:
        reason = ""
    assert "\n" not in reason


def test_results_of_an_earlier_version_are_told_how_to_become_rows(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text("{}")
    with pytest.raises(InputError, match="convert_study_json"):
        sections_of([tmp_path], KNOWN)


def test_a_directory_without_results_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no run"):
        sections_of([tmp_path], KNOWN)


@pytest.mark.parametrize("command", ["report PATH", "redraw PATH", "study table2 --out PATH"])
def test_without_altair_a_command_says_how_to_get_it(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(page_module, "find_spec", lambda name: None)
    path = str(made_table3(tmp_path / "s"))
    code, _, err = gammafl(*command.replace("PATH", path).split(), capsys=capsys)
    assert code == 2
    assert err == "error: this needs altair, which is not installed: pip install 'gammafl[report]'\n"


def test_the_command_writes_the_page_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "page.html"
    code, printed, _ = gammafl("report", str(made_table3(tmp_path / "s")), "--out", str(out), capsys=capsys)
    assert (code, printed) == (0, f"page: {out}\n")
    assert out.read_text().startswith("<!doctype html>")

"""A page says what its directories say, whatever they hold, and nothing that they don't."""

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from gammafl.core.errors import InputError
from gammafl.experiments.pages import sections_of, write_page
from gammafl.experiments.store import QUICK_NOTE
from gammafl.paper.catalogue import STUDIES
from gammafl.report import page as page_module
from tests.report.made import HOSTILE, made_comparison, made_fig4, made_hostile, made_run, made_table3
from tests.runs.forging import DEEP
from tests.test_cli import gammafl


def written(*paths: Path) -> str:
    """The page of these directories, without plotly's own code."""
    out = paths[0].parent / "page.html"
    write_page(paths, out, STUDIES)
    return re.sub(r"<script>/\*\*.*?</script>", "<script></script>", out.read_text(), count=1, flags=re.DOTALL)


def plots_in(html: str) -> list[dict[str, Any]]:
    found = re.search(r'<script type="application/json" id="plots">(.*?)</script>', html, re.DOTALL)
    assert found
    return list(json.loads(found[1]))


def test_a_study_is_shown_with_every_claim_its_verdict_its_tables_and_its_settings(tmp_path: Path) -> None:
    html = unescape(written(made_table3(tmp_path / "s")))
    document = json.loads((tmp_path / "s" / "study.json").read_text())
    assert document["claims"]
    for claim in document["claims"]:
        assert re.search(re.escape(claim["claim"]) + r"</h4><p><span class=\"badge [^>]*>.*?" + claim["verdict"], html)
        for part in claim["parts"]:
            assert part["label"] in html
    for table in document["tables"]:
        assert all(cell in html for row in table["rows"] for cell in row)
    assert '<td class="paper">82.23</td>' in html
    assert '"batch_size": 7' in html
    assert '"numpy"' in html


def test_quick_results_say_that_they_prove_nothing_and_full_ones_do_not(tmp_path: Path) -> None:
    assert f'<p class="warning" role="note">{QUICK_NOTE}</p>' in written(made_table3(tmp_path / "quick"))
    assert QUICK_NOTE not in written(made_table3(tmp_path / "full", quick=False))


def test_nothing_in_a_file_becomes_markup_or_script(tmp_path: Path) -> None:
    html = written(made_hostile(tmp_path / "s"))
    assert html.count("<script") == html.count("</script>") == 3
    assert "<img" not in html
    assert plots_in(html)[-1]["series"][3]["label"]["method"] == HOSTILE


def test_a_page_loads_nothing_and_holds_plotly_once(tmp_path: Path) -> None:
    paths = [made_table3(tmp_path / "a"), made_fig4(tmp_path / "b"), made_comparison(tmp_path / "c")]
    html = written(*paths)
    assert not re.search(r"""(src|href)="(?!#)|url\(|@import|<link|<iframe""", html)
    assert "default-src 'none'" in html
    assert (tmp_path / "page.html").read_text().count("plotly.js v") == 1
    assert (tmp_path / "page.html").stat().st_size < 6e6


def test_curves_can_be_seen_by_iterations_and_by_bytes_as_metric_loss_and_kept_fraction(tmp_path: Path) -> None:
    curves = plots_in(written(made_table3(tmp_path / "s")))[-1]
    assert [axis["key"] for axis in curves["x"]] == ["iteration", "sent_bytes"]
    assert [axis["key"] for axis in curves["y"]] == ["metric", "loss", "kept_fraction"]
    first = curves["series"][0]
    assert first["label"] == {"classes": "classes 2", "method": "γ-FedHT"}
    assert first["values"]["metric"][0] is None  # was not evaluated yet
    assert first["values"]["metric"][-1] == pytest.approx(50.05)
    assert (first["low"]["metric"][-1], first["high"]["metric"][-1]) == (50.0, 50.1)
    assert {f["name"]: f["chosen"] for f in curves["factors"]} == {"classes": "2", "method": ""}  # ten lines: too many


def test_a_heat_maps_colours_reach_as_far_as_its_values_with_zero_in_the_middle(tmp_path: Path) -> None:
    maps = [plot["traces"][0] for plot in plots_in(written(made_fig4(tmp_path / "s"))) if plot["kind"] == "figure"]
    assert len(maps) == 2  # γ-FedHT against Top-k, γ-FedHT-Q against STC
    for one in maps:
        largest = max(abs(value) for row in one["z"] for value in row if value is not None)
        assert (one["zmin"], one["zmax"]) == (-largest, largest)
    assert maps[0]["text"][0][0].startswith("−1.00")


def test_runs_that_differ_in_the_seed_alone_are_one_curve(tmp_path: Path) -> None:
    runs = [made_run(tmp_path / f"r{seed}", seed=seed) for seed in (0, 1)]
    other = made_run(tmp_path / "r2", batch_size=7)
    [section] = sections_of([*runs, other], STUDIES)
    labels = [one["label"]["method"] for one in section.plots[0].spec["series"]]
    assert [label.partition(",")[0] for label in labels] == ["HT", "HT"]
    assert "batch_size 7" in labels[1]
    assert [one["seeds"] for one in section.plots[0].spec["series"]] == [2, 1]


def test_a_run_that_is_not_finished_is_shown_as_far_as_it_went(tmp_path: Path) -> None:
    [section] = sections_of([made_run(tmp_path / "r", finished=False)], STUDIES)
    assert section.warning.startswith("1 of 1 runs are not finished")
    assert [axis["key"] for axis in section.plots[0].spec["y"]] == ["metric", "loss"]


def test_a_comparison_keeps_its_table_and_every_configuration(tmp_path: Path) -> None:
    [section] = sections_of([made_comparison(tmp_path / "c")], STUDIES)
    assert [row[0] for row in section.tables[0].rows] == ["γ-FedHT", "FedAVG"]
    text = section.details[0][1]
    assert [text.count(f'method = "{method}"') for method in ("gamma-fedht", "fedavg")] == [2, 2]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"study": "table3"}', '{"study": "table3", "runs": [{}]}', DEEP], ids=range(6)
)
def test_a_damaged_study_is_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text(text)
    with pytest.raises(InputError, match=r"study.json is damaged or of another version"):
        sections_of([tmp_path], STUDIES)


@pytest.mark.parametrize("key", ["factors", "runs", "tables", "claims", "versions", "task", "title"])
@pytest.mark.parametrize(
    "wrong", [3, None, "x", [3], {"x": 3}, [{"parts": 3}], [{"columns": [], "rows": [[1]]}]], ids=str
)
def test_a_study_with_a_part_of_another_type_is_one_line_or_shown(key: str, wrong: Any, tmp_path: Path) -> None:
    file = made_table3(tmp_path) / "study.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {key: wrong}))
    try:
        write_page([tmp_path], tmp_path / "page.html", STUDIES)
    except InputError as error:
        reason = str(error)
    else:
        reason = ""
    assert "\n" not in reason


@pytest.mark.parametrize("text", ["", "[]", "3", "[3]", '[{"method": "ht", "seed": 0}]', DEEP], ids=range(6))
def test_a_damaged_comparison_is_one_line(text: str, tmp_path: Path) -> None:
    (made_comparison(tmp_path) / "comparison.json").write_text(text)
    with pytest.raises(InputError, match=r"comparison.json is damaged"):
        sections_of([tmp_path], STUDIES)


def test_a_directory_without_results_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no run"):
        sections_of([tmp_path], STUDIES)


def test_without_plotly_the_command_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(page_module, "find_spec", lambda name: None)
    code, _, err = gammafl("report", str(made_table3(tmp_path / "s")), capsys=capsys)
    assert code == 2
    assert err == "error: a page needs plotly, which is not installed: pip install 'gammafl[report]'\n"


def test_without_plotly_a_study_goes_on_and_says_that_the_page_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(page_module, "find_spec", lambda name: None)
    code, printed, _ = gammafl("study", "table2", "--out", str(tmp_path), capsys=capsys)
    assert code == 0
    assert "report.html is left out: a page needs plotly" in printed
    assert not (tmp_path / "table2" / "report.html").exists()


def test_the_command_writes_the_page_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "page.html"
    code, printed, _ = gammafl("report", str(made_table3(tmp_path / "s")), "--out", str(out), capsys=capsys)
    assert (code, printed) == (0, f"page: {out}\n")
    assert out.read_text().startswith("<!doctype html>")

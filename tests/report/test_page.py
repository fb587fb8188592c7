"""The page in a real browser: it renders without a complaint, obeys its buttons, and fits a phone and a dark room."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gammafl.experiments.pages import write_page
from gammafl.paper.catalogue import STUDIES
from tests.browser import Page, find_browser, open_browser
from tests.report.made import HOSTILE, made_comparison, made_fig4, made_hostile, made_table3

CURVES = "[...document.querySelectorAll('figure.wide')].find(f => f.querySelector('.legend button'))"
"""The figure with the training curves of the first section."""
AXES = f"{CURVES}.querySelector('.canvas')._fullLayout"
DRAWN = f"{CURVES}.querySelectorAll('.scatterlayer .trace path.js-line').length"


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study with curves, one with heat maps, and a comparison."""
    root = tmp_path_factory.mktemp("page")
    paths = [made_table3(root / "table3"), made_fig4(root / "fig4"), made_comparison(root / "comparison")]
    write_page(paths, root / "page.html", STUDIES)
    return root / "page.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    program = find_browser()
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("no Chromium here, and CI must test in one: make browser")
        pytest.skip("no Chromium here: make browser, or install the package chromium")
    with open_browser(program, tmp_path_factory.mktemp("browser") / "profile") as page:
        yield page


@pytest.fixture
def page(browser: Page, document: Path) -> Page:
    """The page on a desktop, freshly opened."""
    browser.problems.clear()
    browser.requests.clear()
    browser.screen(1280, 900)
    browser.open(document)
    browser.wait_for("document.documentElement.dataset.drawn")
    return browser


def mark(page: Page, element: str) -> str:
    """A selector of the element that the expression finds."""
    page.evaluate(
        "document.querySelectorAll('[data-marked]').forEach(e => delete e.dataset.marked);"
        f"({element}).dataset.marked = 'yes'"
    )
    return "[data-marked]"


def press(page: Page, text: str) -> None:
    """A button of the curves, by its text."""
    page.click(mark(page, f"[...{CURVES}.querySelectorAll('button')].find(b => b.textContent == {text!r})"))


def test_every_plot_is_drawn_without_a_complaint_and_without_the_network(page: Page) -> None:
    drawn = "[...document.querySelectorAll('.canvas')].map(c => c.querySelectorAll('.scatterlayer .trace, .hm').length)"
    counts = page.evaluate(drawn)
    assert len(counts) == 6  # intervals and curves, two heat maps and curves, curves
    assert min(counts) > 0
    assert page.problems == []
    assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []


def test_a_press_on_a_name_in_the_legend_hides_the_curve_and_another_brings_it_back(page: Page) -> None:
    before = page.evaluate(DRAWN)
    press(page, "HT")
    page.wait_for(f"{DRAWN} < {before}")
    button = f"[...{CURVES}.querySelectorAll('.legend button')].find(b => b.textContent == 'HT')"
    assert page.evaluate(f"{button}.getAttribute('aria-pressed')") == "false"
    press(page, "HT")
    page.wait_for(f"{DRAWN} == {before}")


def test_the_x_axis_can_be_bytes(page: Page) -> None:
    assert page.evaluate(f"{AXES}.xaxis.title.text") == "iterations"
    press(page, "bytes sent")
    page.wait_for(f"{AXES}.xaxis.title.text.includes('bytes')")
    assert page.evaluate(f"{CURVES}.querySelector('.canvas').data.at(-1).x.at(-1)") == 900


def test_what_is_shown_can_be_chosen(page: Page) -> None:
    press(page, "loss")
    page.wait_for(f"{AXES}.yaxis.title.text == 'loss on the test set'")
    press(page, "kept")
    page.wait_for(f"{AXES}.yaxis.title.text == 'entries kept (%)'")
    assert page.evaluate(f"{AXES}.yaxis.type") == "log"


def test_both_axes_can_be_logarithmic(page: Page) -> None:
    for button, axis in (("log x", "xaxis"), ("log y", "yaxis")):
        assert page.evaluate(f"{AXES}.{axis}.type") == "linear"
        press(page, button)
        page.wait_for(f"{AXES}.{axis}.type == 'log'")
    press(page, "log x")
    page.wait_for(f"{AXES}.xaxis.type == 'linear'")
    assert page.problems == []


def test_other_settings_can_be_chosen(page: Page) -> None:
    last = f"{CURVES}.querySelector('.canvas').data.at(-1).y.at(-1)"
    before = page.evaluate(last)
    page.evaluate(
        f"(() => {{ const menu = {CURVES}.querySelector('select');"
        "menu.value = '3'; menu.dispatchEvent(new Event('change')) })()"
    )
    assert page.evaluate(last) == pytest.approx(before + 5)


def test_a_point_under_the_mouse_says_its_numbers(page: Page) -> None:
    page.evaluate(f"{CURVES}.scrollIntoView({{block: 'center'}})")
    x, y = page.evaluate(
        f"(() => {{ const c = {CURVES}.querySelector('.canvas'), a = c._fullLayout, r = c.getBoundingClientRect();"
        "const last = c.data.at(-1).y.at(-1);"
        "return [r.x + a.xaxis._offset + a.xaxis.l2p(100), r.y + a.yaxis._offset + a.yaxis.l2p(last)] })()"
    )
    page.hover(x - 3, y)
    page.hover(x - 2, y)
    page.wait_for(f"{CURVES}.querySelector('.hovertext')")
    assert "accuracy" in page.evaluate(f"{CURVES}.querySelector('.hovertext').textContent")


def test_names_are_shown_as_they_are_and_never_run(page: Page, tmp_path: Path) -> None:
    write_page([made_hostile(tmp_path / "s")], tmp_path / "page.html", STUDIES)
    page.open(tmp_path / "page.html")
    page.wait_for("document.documentElement.dataset.drawn")
    names = f"[...{CURVES}.querySelectorAll('.legend button')].map(b => b.textContent)"
    assert HOSTILE in page.evaluate(names)
    assert page.evaluate("document.querySelectorAll('img').length") == 0
    assert page.problems == []


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_needs_no_sideways_scrolling(page: Page, document: Path, dark: bool) -> None:
    page.screen(390, 844, dark=dark, phone=True)
    page.open(document)
    page.wait_for("document.documentElement.dataset.drawn")
    assert page.evaluate("innerWidth") == 390
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.wait_for(
        "[...document.querySelectorAll('.canvas .main-svg')].every(s => s.getBoundingClientRect().right <= 390)"
    )
    assert page.problems == []


def test_a_dark_room_has_a_dark_page_and_the_plots_follow(page: Page) -> None:
    """Also when the room becomes dark while the page is open."""
    shade = "(css => css.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0))"
    background = f"{shade}(getComputedStyle(document.body).backgroundColor)"
    text = f"{shade}(getComputedStyle({CURVES}.querySelector('.canvas .xtick text')).fill)"
    assert page.evaluate(background) > 700
    assert page.evaluate(text) < 150
    page.screen(1280, 900, dark=True)
    page.wait_for(f"{background} < 100")
    page.wait_for(f"{text} > 600")
    points = "[...document.querySelectorAll('.scatterlayer .point')].map(p => getComputedStyle(p).stroke)"
    strokes = set(page.evaluate(points)) - {"none"}
    assert strokes == {"rgb(231, 234, 238)"}  # the paper's diamonds, black in the light


def test_paper_is_white_even_in_a_dark_room(page: Page) -> None:
    page.screen(1280, 900, dark=True, media="print")
    shade = "getComputedStyle(document.body).backgroundColor"
    page.wait_for(f"{shade} == 'rgb(255, 255, 255)'")
    assert page.evaluate("getComputedStyle(document.querySelector('.controls')).display") == "none"


def test_every_plot_and_table_says_in_words_what_it_is(page: Page) -> None:
    silent = "[...document.querySelectorAll('.canvas, .scroll')].filter(e => !e.getAttribute('aria-label')).length"
    assert page.evaluate(silent) == 0
    assert page.evaluate("[...document.querySelectorAll('table')].every(t => t.querySelector('th[scope=col]'))")
    assert page.evaluate("document.querySelectorAll('h1').length") == 1

"""The page in a real browser: it renders without a complaint, obeys its buttons, and fits a phone and a dark room."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gammafl.experiments.pages import write_page
from gammafl.paper.catalogue import KNOWN
from tests.browser import Page, find_browser, open_browser
from tests.report.made import made_comparison, made_fig4, made_hostile, made_table3

CURVES = "[...document.querySelectorAll('figure.wide')].find(f => f.querySelector('.legend button'))"
"""The figure with the training curves of the first section."""
DRAWN = f"{CURVES}.querySelectorAll('.canvas .mark-line path').length"
X, Y = (f"{CURVES}.view.scale('{axis}')" for axis in "xy")


def title(axis: int) -> str:
    """The words at the x axis (0) or the y axis (1)."""
    return f"{CURVES}.querySelectorAll('.canvas .role-axis-title text')[{axis}].textContent"


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study with curves, one with heat maps, and a comparison."""
    root = tmp_path_factory.mktemp("page")
    paths = [made_table3(root / "table3"), made_fig4(root / "fig4"), made_comparison(root / "comparison")]
    write_page(paths, root / "page.html", KNOWN)
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
    marks = "'.mark-line path, .mark-rect path, .mark-rule line'"
    counts = page.evaluate(f"[...document.querySelectorAll('.canvas')].map(c => c.querySelectorAll({marks}).length)")
    assert len(counts) == 8  # intervals and curves, two heat maps and curves, two panels and curves
    assert min(counts) > 0
    assert page.problems == []
    assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []


def test_a_press_on_a_name_in_the_legend_hides_the_line_and_another_brings_it_back(page: Page) -> None:
    before = page.evaluate(DRAWN)
    press(page, "HT")
    page.wait_for(f"{DRAWN} < {before}")
    button = f"[...{CURVES}.querySelectorAll('.legend button')].find(b => b.textContent == 'HT')"
    assert page.evaluate(f"{button}.getAttribute('aria-pressed')") == "false"
    press(page, "HT")
    page.wait_for(f"{DRAWN} == {before}")


def test_what_was_hidden_stays_hidden_when_another_quantity_is_shown(page: Page) -> None:
    before = page.evaluate(DRAWN)
    press(page, "HT")
    press(page, "loss")
    page.wait_for(f"{title(1)} == 'loss on the test set' && {DRAWN} == {before - 1}")


def test_the_x_axis_can_be_bytes(page: Page) -> None:
    assert page.evaluate(title(0)) == "iterations"
    press(page, "bytes sent")
    page.wait_for(f"{title(0)}.includes('(bytes)')")
    assert page.evaluate(f"{X}.domain()[1]") == pytest.approx(900)


def test_what_is_shown_can_be_chosen(page: Page) -> None:
    press(page, "loss")
    page.wait_for(f"{title(1)} == 'loss on the test set'")
    press(page, "kept")
    page.wait_for(f"{title(1)}.startsWith('entries kept (%)')")
    assert page.evaluate(f"{Y}.type") == "log"


def test_both_axes_can_be_logarithmic(page: Page) -> None:
    for button, axis in (("log x", X), ("log y", Y)):
        assert page.evaluate(f"{axis}.type") == "linear"
        press(page, button)
        page.wait_for(f"{axis}.type == 'log'")
    press(page, "log x")
    page.wait_for(f"{X}.type == 'linear'")
    assert page.problems == []


def test_other_settings_can_be_chosen(page: Page) -> None:
    lines = f"[...{CURVES}.querySelectorAll('.canvas .mark-line path')].map(p => p.getAttribute('d')).join()"
    before = page.evaluate(lines)
    page.evaluate(
        f"(() => {{ const menu = {CURVES}.querySelector('select');"
        "menu.value = '3'; for (const kind of ['input', 'change']) menu.dispatchEvent(new Event(kind)) })()"
    )
    page.wait_for(f"{CURVES}.view.signal('menu0') == '3'")
    page.wait_for(f"{lines} != {before!r}")  # they end five points higher


def test_a_point_under_the_mouse_says_its_numbers(page: Page) -> None:
    page.evaluate(f"{CURVES}.scrollIntoView({{block: 'center'}})")
    x, y = page.evaluate(
        f"(() => {{ const points = [...{CURVES}.querySelectorAll('.canvas .hover_marks path')];"
        "const r = points.at(-1).getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2] })()"
    )
    page.hover(x - 1, y)
    page.hover(x, y)
    page.wait_for("document.querySelector('#vg-tooltip-element.visible')")
    assert "accuracy" in page.evaluate("document.querySelector('#vg-tooltip-element').textContent")


def test_names_are_shown_as_they_are_and_never_run(page: Page, tmp_path: Path) -> None:
    write_page([made_hostile(tmp_path / "s")], tmp_path / "page.html", KNOWN)
    page.open(tmp_path / "page.html")
    page.wait_for("document.documentElement.dataset.drawn")
    names = f"[...{CURVES}.querySelectorAll('.legend button')].map(b => b.textContent)"
    assert any("<script>alert" in name for name in page.evaluate(names))
    assert page.evaluate("document.querySelectorAll('img').length") == 0
    assert page.problems == []


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_needs_no_sideways_scrolling(page: Page, document: Path, dark: bool) -> None:
    page.screen(390, 844, dark=dark, phone=True)
    page.open(document)
    page.wait_for("document.documentElement.dataset.drawn")
    assert page.evaluate("innerWidth") == 390
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.wait_for("[...document.querySelectorAll('.canvas svg')].every(s => s.getBoundingClientRect().right <= 390)")
    assert page.problems == []


def test_a_dark_room_has_a_dark_page_and_the_plots_follow(page: Page) -> None:
    """Also when the room becomes dark while the page is open."""
    shade = "(css => css.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0))"
    background = f"{shade}(getComputedStyle(document.body).backgroundColor)"
    text = f"{shade}(getComputedStyle({CURVES}.querySelector('.canvas .role-axis-label text')).fill)"
    assert page.evaluate(background) > 700
    assert page.evaluate(text) < 150
    page.screen(1280, 900, dark=True)
    page.wait_for(f"{background} < 100")
    page.wait_for(f"{text} > 600")
    dashed = f"{CURVES}.querySelector('.canvas .mark-line path[stroke-dasharray=\"6,4\"]')"
    page.wait_for(f"getComputedStyle({dashed}).stroke == 'rgb(231, 234, 238)'")  # FedAVG, black in the light


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

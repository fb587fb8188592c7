"""The documentation as a site: it builds without a warning, loads nothing from elsewhere, and links lead somewhere."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

import gammafl as gf
from tests.browser import find_browser, open_browser
from tools import cli_page, configuration_page
from tools.site_hooks import on_page_content

ROOT = Path(__file__).parents[1]
ELSEWHERE = re.compile(r"(https?:)?//")
LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
ONLY_NAMED = {"canonical", "next", "prev"}
"""Relations of `link` that a browser does not load."""


class Page(HTMLParser):
    """What a page loads, where its links lead, and the places on it that links can name."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads, self.links, self.ids = set[str](), set[str](), set[str]()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = dict(attrs)
        self.ids |= {value for key in ("id", "name") if (value := has.get(key))}
        if (address := has.get(LOADS.get(tag, ""))) and has.get("rel") not in ONLY_NAMED:
            self.loads.add(address)
        if tag == "a" and (target := has.get("href")):
            self.links.add(target)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    """Path → page; the page for missing addresses is written for the root of a server."""
    return {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}


def test_no_page_loads_anything_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    assert len(pages) > 50
    assert {address for page in pages.values() for address in page.loads if ELSEWHERE.match(address)} == set()
    for style in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//", style.read_text("utf-8")), style


def test_every_link_leads_to_a_page_and_to_a_place_on_it(pages: dict[Path, Page]) -> None:
    nowhere = set()
    for path, page in pages.items():
        for target in page.links | page.loads:
            if ELSEWHERE.match(target) or target.startswith(("mailto:", "javascript:", "data:")):
                continue
            address, _, anchor = unquote(target).partition("#")
            there = (path.parent / address).resolve() if address else path
            if not there.exists() or (anchor and there in pages and anchor not in pages[there].ids):
                nowhere.add(f"{path.name}: {target}")
    assert nowhere == set()


def test_every_public_name_is_in_the_reference(pages: dict[Path, Page]) -> None:
    ids = {place for path, page in pages.items() if path.parent.name == "api" for place in page.ids}
    assert {name for name in gf.__all__ if f"gammafl.{name}" not in ids} == set()
    assert {name for name in gf.flower.__all__ if f"gammafl.flower.{name}" not in ids} == {"Limits"}  # it is gf.Limits


def test_arguments_and_examples_of_a_function_are_sections(site: Path) -> None:
    text = (site / "api/methods.html").read_text("utf-8")
    assert "Parameters:" in text
    assert "Examples:" in text
    assert "keep                the kept fraction" not in text


@pytest.mark.parametrize("generated", [cli_page, configuration_page], ids=["commands", "schema"])
def test_a_page_of_the_reference_is_what_the_code_says(generated: object) -> None:
    """If this fails, run: make reference-pages"""
    assert generated.PAGE.read_text("utf-8") == generated.page()  # type: ignore[attr-defined]


def test_no_list_and_no_table_is_left_as_text(site: Path) -> None:
    """As where no empty line is before it: the repository's pages show such a list, the site does not."""
    text = re.compile(r"<p>[^<]*(?:<(?!/p>)[^<]*)*\n(?:- |\d+\. |\|)")
    pages = [path for path in site.rglob("*.html") if path.parent.name != "api"]
    assert [path.name for path in pages if text.search(path.read_text("utf-8"))] == []


def test_a_link_to_a_page_shows_its_title_and_not_its_file(site: Path) -> None:
    shown = re.compile(r">`?(?:[\w./-]*/)?[\w-]+\.md`?</a>")
    assert [path.name for path in site.rglob("*.html") if shown.search(path.read_text("utf-8"))] == []


def test_no_escape_of_the_source_is_shown(site: Path) -> None:
    escaped = re.compile(r"<code>[^<]*\\\|")
    assert [path.name for path in site.rglob("*.html") if escaped.search(path.read_text("utf-8"))] == []


def test_an_option_in_a_table_stays_whole_and_a_command_does_not() -> None:
    html = "<td><code>--data-dir</code></td><td><code>gammafl run cnn-cifar10 --profile</code></td>"
    whole, command = on_page_content(html, *[None] * 3).split("</td>")[:2]
    assert 'class="whole"' in whole
    assert 'class="whole"' not in command


def test_a_page_from_the_disk_offers_no_search(site: Path, tmp_path: Path) -> None:
    """A browser lets such a page read no index. When the site is served, the button is there."""
    program = find_browser()
    if program is None:
        pytest.skip("there is no Chromium: make browser")
    seen = "document.querySelector('.md-header [for=__search]').checkVisibility()"
    box = "document.querySelector('.md-search')"
    with open_browser(program, tmp_path / "profile") as page:
        page.screen(390, 844, phone=True)
        page.open(site / "index.html")
        page.wait_for(f"{box}.hidden")
        assert not page.evaluate(seen)
        page.evaluate(f"{box}.hidden = false")
        assert page.evaluate(seen)

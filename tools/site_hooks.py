"""Hooks of mkdocs: they add pages that are outside of docs/, and adapt links to the site.

Links are written so that they work in the repository. On the site, a link to a page leads to that page. A link to any
other file becomes the file's name, or, if mkdocs.yml has a `repo_url`, a link to the file in the repository.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "results/README.md": "results/index.md",
    "results/claims.md": "results/claims.md",
    **{f"results/{path.parent.name}/tables.md": f"results/{path.parent.name}/tables.md"
       for path in sorted(ROOT.glob("results/*/tables.md"))},
}  # fmt: skip
"""File outside of docs/ → page of the site."""

PICTURES = {".png", ".svg"}
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
NAME = re.compile(r"(<td[^>]*><code)(>[^<\s]{1,28}</code>)")
"""Code without a blank at the beginning of a table's cell: a name or an option, no command."""

FENCE = re.compile(r"^ *(`{3,}|~{3,})")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are outside of docs/, and the pictures that pages show."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    pictures = {picture for file in files if file.is_documentation_page() for picture in _pictures(file)}
    for picture in sorted(pictures):
        files.append(File.generated(config, picture, abs_src_path=str(ROOT / picture)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with the links of the site. The front page is alone in its section, so it gets no list of pages."""
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation"]
    source, titles = _source(page.file), _titles(config.nav)

    def mended(link: re.Match[str]) -> str:
        picture, text, target = link.groups()
        address, anchor = target.partition("#")[::2]
        if ":" in address.partition("/")[0] or not address:
            return link[0]
        place = posixpath.normpath(posixpath.join(posixpath.dirname(source), address))
        names = (address, place, posixpath.basename(address))
        if not (ROOT / place).exists():
            raise PluginError(f"{source}: the link to {target} leads to no file; correct the link")
        if (there := _address(place, files)) is not None:
            text = titles.get(there, text) if text.strip("`") in names else text
            way = posixpath.relpath(there, posixpath.dirname(page.file.src_uri) or ".")
            return f"{picture}[{text}]({way}{'#' + anchor if anchor else ''})"
        if config.repo_url:
            return f"[{text}]({config.repo_url.rstrip('/')}/blob/HEAD/{place})"
        return f"`{place}`" if text.strip("`") in names else f"{text} (`{place}`)"

    return _outside_of_blocks(markdown, lambda line: LINK.sub(mended, line))


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """The page where names in tables stay whole, also on a phone: a browser would break them at a hyphen."""
    return NAME.sub(r'\1 class="whole"\2', html)


def _outside_of_blocks(markdown: str, change: Any) -> str:
    lines, fence = [], ""
    for line in markdown.split("\n"):
        if (mark := FENCE.match(line)) and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        lines.append(line if fence or mark else change(line))
    return "\n".join(lines)


def _source(file: File) -> str:
    """Where a page is in the repository."""
    return next((source for source, page in PAGES.items() if page == file.src_uri), f"docs/{file.src_uri}")


def _titles(nav: Any) -> dict[str, str]:
    """Page → its title in the navigation. On the site, this title replaces a link's text that is only a file name."""
    if isinstance(nav, list):
        return {page: title for entry in nav for page, title in _titles(entry).items()}
    if not isinstance(nav, dict):
        return {}
    titles: dict[str, str] = {}
    for title, entry in nav.items():
        titles |= {entry: title} if isinstance(entry, str) else _titles(entry)
    return titles


def _address(place: str, files: Files) -> str | None:
    """Where a file of the repository is on the site."""
    if place in PAGES:
        return PAGES[place]
    there = place.removeprefix("docs/") if place.startswith("docs/") else place
    return there if files.get_file_from_path(there) else None


def _pictures(file: File) -> set[str]:
    """Pictures outside of docs/ that a page shows."""
    folder = posixpath.dirname(_source(file))
    shown = (link[3] for link in LINK.finditer(file.content_string) if link[1])
    places = {posixpath.normpath(posixpath.join(folder, target)) for target in shown}
    return {place for place in places if not place.startswith(("docs/", "http")) and Path(place).suffix in PICTURES}

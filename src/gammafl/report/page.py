"""One self-contained HTML page: what was run, the verdicts on the claims, plots, tables, and how it was made.

Jinja escapes everything that comes from a file. It also escapes the data for the script, which are JSON without a '<'.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

from gammafl.core.errors import not_installed
from gammafl.report.charts import DASHES, Panel
from gammafl.report.tables import TextTable

SIGNS = {"holds": ("holds", "✓"), "does not hold": ("fails", "✗"), "not decided at this noise": ("open", "?")}
"""Verdict → its class in page.css and its sign."""
NEEDED = {"altair": "altair", "vl_convert": "vl-convert-python", "jinja2": "jinja2", "scipy": "scipy"}
"""Module → the package that has it."""


@dataclass(frozen=True)
class ClaimCard:
    """A claim with its verdict and its evidence: texts, each with its own verdict.

    If there is a `summary`, the page shows it in place of the evidence, which a click opens.
    """

    sentence: str
    source: str
    verdict: str
    seeds: str
    evidence: Sequence[tuple[str, str]]
    summary: str = ""


@dataclass(frozen=True)
class Section:
    """A study on one task, a comparison, or runs. `details` are heading → text."""

    title: str
    note: str = ""
    warning: str = ""
    facts: Sequence[tuple[str, str]] = ()
    claims: Sequence[ClaimCard] = ()
    panels: Sequence[Panel] = ()
    tables: Sequence[TextTable] = ()
    more_tables: Sequence[TextTable] = ()
    details: Sequence[tuple[str, str]] = ()

    def count(self, verdict: str) -> int:
        """How many claims have this verdict."""
        return sum(claim.verdict == verdict for claim in self.claims)


def need_charts() -> None:
    """Raises an `InputError` that names what to install, if a package is missing."""
    for module, package in NEEDED.items():
        if find_spec(module) is None:
            raise not_installed(package, "report")


def render(title: str, sections: Sequence[Section]) -> str:
    """The HTML of the whole page."""
    need_charts()
    from jinja2 import Environment
    from markupsafe import Markup

    panels = [panel for section in sections for panel in section.panels]
    environment = Environment(autoescape=True, trim_blocks=True)
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "allow_nan": False, "separators": (",", ":")}
    return (
        environment.from_string(_file("page.html"))
        .render(
            title=title,
            sections=sections,
            signs=SIGNS,
            style=Markup(_file("page.css")),
            made=f"gammafl {version('gammafl')}, altair {version('altair')}, vl-convert {version('vl-convert-python')}",
            vega=Markup(_vega() if panels else ""),
            plots=[_plot(panel) for panel in panels],
            script=Markup(_file("page.js")),
        )
        .strip()
    )


def _file(name: str) -> str:
    return (files("gammafl.report") / name).read_text(encoding="utf-8")


@cache
def _vega() -> str:
    """Vega, Vega-Lite and vega-embed as one script, without text that would end the script element."""
    import vl_convert

    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")).replace("</script", "<\\/script")


def _plot(panel: Panel) -> Mapping[str, Any]:
    """What page.js needs of a panel."""
    return {
        "views": [{"buttons": view.buttons, "spec": view.spec} for view in panel.views],
        "data": panel.data,
        "legend": [{"name": name, "colour": colour, "dash": DASHES[dash]} for name, colour, dash in panel.legend],
        "logs": panel.logs,
    }

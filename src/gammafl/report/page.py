"""One self-contained HTML page: what was run, what it says to the claims, plots, tables, and how it was made.

Everything that comes from a file is escaped here, once: text by `_text`, data for the script by `_json`.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from string import Template
from typing import Any

from gammafl.core.errors import InputError
from gammafl.report.curves import Plot
from gammafl.report.tables import TextTable

SIGNS = {"holds": ("holds", "✓"), "does not hold": ("fails", "✗"), "not decided at this noise": ("open", "?")}
"""Verdict → its class in page.css and its sign."""
HINT = (
    "Hover or tap for numbers; drag to zoom, double-click to go back. "
    "Press a name to hide its curve, twice to see it alone."
)
FEW = 4
"""Parts of a claim that are shown without being asked for."""


@dataclass(frozen=True)
class Section:
    """A study on one task, a comparison, or runs. `claims` are as in study.json; `details` are heading → text."""

    title: str
    note: str = ""
    warning: str = ""
    facts: Sequence[tuple[str, str]] = ()
    claims: Sequence[Mapping[str, Any]] = ()
    plots: Sequence[Plot] = ()
    tables: Sequence[TextTable] = ()
    more_tables: Sequence[TextTable] = ()
    details: Sequence[tuple[str, str]] = ()


def need_plotly() -> None:
    if find_spec("plotly") is None:
        raise InputError("a page needs plotly, which is not installed: pip install 'gammafl[report]'")


def render(title: str, sections: Sequence[Section]) -> str:
    """The whole document."""
    need_plotly()
    from plotly.offline import get_plotlyjs

    plots = [plot for section in sections for plot in section.plots]
    numbers = iter(range(len(plots)))
    parts = {
        "title": _text(title),
        "style": _file("page.css"),
        "contents": _contents(sections),
        "body": "\n".join(_section(i, section, numbers, len(sections) == 1) for i, section in enumerate(sections)),
        "made": _text(f"gammafl {version('gammafl')}, plotly {version('plotly')}"),
        "plotly": get_plotlyjs() if plots else "",
        "data": _json([plot.spec for plot in plots]),
        "script": _file("page.js"),
    }
    return Template(_file("page.html")).substitute(parts)


def _file(name: str) -> str:
    return (files("gammafl.report") / name).read_text(encoding="utf-8")


def _text(value: object) -> str:
    return escape(str(value))


def _json(data: object) -> str:
    """JSON within a script element: no '<', so that nothing in it can end the element or begin a comment."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _contents(sections: Sequence[Section]) -> str:
    if len(sections) < 2:
        return ""
    items = "".join(f'<li><a href="#s{i}">{_text(one.title)}</a> {_counts(one)}</li>' for i, one in enumerate(sections))
    return f'<nav aria-label="Contents"><ul>{items}</ul></nav>'


def _section(number: int, section: Section, plot_numbers: Iterator[int], alone: bool) -> str:
    """A section that is alone has its title above the page already."""
    plots = "".join(_figure(next(plot_numbers), plot) for plot in section.plots)
    pieces = [
        f'<section id="s{number}" aria-label="{_text(section.title)}">',
        "" if alone else f"<h2>{_text(section.title)}</h2>",
        f'<p class="warning" role="note">{_text(section.warning)}</p>' if section.warning else "",
        f"<p>{_text(section.note)}</p>" if section.note else "",
        _facts(section.facts),
        _claims(section) if section.claims else "",
        f'<h3>Plots</h3><p class="note hint">{HINT}</p><div class="plots">{plots}</div>' if plots else "",
        "<h3>Tables</h3>" if section.tables else "",
        *(_table(table) for table in section.tables),
        *(
            f"<details><summary>{_text(t.title)}</summary>{_table(t, titled=False)}</details>"
            for t in section.more_tables
        ),
        *(
            f"<details><summary>{_text(h)}</summary><pre tabindex=0>{_text(t)}</pre></details>"
            for h, t in section.details
        ),
        "</section>",
    ]
    return "\n".join(piece for piece in pieces if piece)


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    rows = "".join(f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>" for name, value in facts)
    return f'<dl class="facts">{rows}</dl>' if rows else ""


def _figure(number: int, plot: Plot) -> str:
    """The script fills the controls, the plot and its legend."""
    kind = "wide" if plot.wide else "narrow"
    return (
        f'<figure class="plot {kind}" data-plot="{number}"><figcaption>{_text(plot.title)}</figcaption>'
        f'<div class="controls"></div><div class="canvas" role="img" aria-label="{_text(plot.words)}"></div>'
        '<div class="legend" role="group" aria-label="Curves: press to hide or show"></div></figure>'
    )


def _counts(section: Section) -> str:
    """'✓ 2 ✗ 1 ? 3' as badges."""
    counts = Counter(str(claim["verdict"]) for claim in section.claims)
    return " ".join(_badge(verdict, f"{verdict}: {counts[verdict]}") for verdict in SIGNS if counts[verdict])


def _badge(verdict: str, words: str = "") -> str:
    kind, sign = SIGNS.get(verdict, ("open", "?"))
    return f'<span class="badge {kind}"><span aria-hidden="true">{sign}</span> {_text(words or verdict)}</span>'


def _claims(section: Section) -> str:
    cards = "".join(_claim(claim) for claim in section.claims)
    return f'<h3>Claims</h3><p class="counts">{_counts(section)}</p><ol class="claims">{cards}</ol>'


def _claim(claim: Mapping[str, Any]) -> str:
    parts, verdict = claim["parts"], str(claim["verdict"])
    kind = SIGNS.get(verdict, ("open", ""))[0]
    counts = Counter(str(part["verdict"]) for part in parts)
    evidence = _table(_evidence(parts), titled=False) if parts else "<p>No runs yet.</p>"
    if len(parts) > FEW:
        words = ", ".join(f"{one}: {counts[one]}" for one in SIGNS if counts[one])
        evidence = f"<details><summary>{len(parts)} parts; {_text(words)}</summary>{evidence}</details>"
    source = f"<cite>{_text(claim['source'])}</cite>, {_seeds(parts)}"
    head = f"<h4>{_text(claim['claim'])}</h4><p>{_badge(verdict)} {source}</p>"
    return f'<li class="claim {kind}">{head}{evidence}</li>'


def _seeds(parts: Sequence[Mapping[str, Any]]) -> str:
    """'3 seeds'; '1 – 3 seeds' where parts differ."""
    counts = sorted({len(part["seeds"]) for part in parts} or {0})
    if not counts[-1]:
        return "no runs"
    return f"{' – '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} seed{'' if counts[-1] == 1 else 's'}"


def _evidence(parts: Sequence[Mapping[str, Any]]) -> TextTable:
    """Only columns that say something: a phone is narrow."""
    units = list(dict.fromkeys(part["unit"] for part in parts))
    shared = f" ({units[0]})" if len(units) == 1 and units[0] else ""
    columns = {
        "where": [str(part["label"]) for part in parts],
        f"mean{shared}": [_number(part["mean"], "" if shared else part["unit"]) for part in parts],
        "95% interval": [_interval(part) for part in parts],
        "wanted": [str(part["wanted"]).replace("-", "−") for part in parts],
    }
    if any(part["paper"] is not None for part in parts):
        columns["paper"] = [_number(part["paper"], "") for part in parts]
    if len(parts) > 1:
        columns["verdict"] = [str(part["verdict"]) for part in parts]
    return TextTable("", list(columns), [list(row) for row in zip(*columns.values(), strict=True)])


def _number(value: float | None, unit: str) -> str:
    return "–" if value is None else f"{value:+.3g} {unit}".strip().replace("-", "−")


def _interval(part: Mapping[str, Any]) -> str:
    """Of one seed there is none, unless it is no measurement."""
    low, high = part["low"], part["high"]
    if low is None or high is None:
        return "–"
    return "exact" if low == high and len(part["seeds"]) < 2 else f"[{low:+.3g}, {high:+.3g}]".replace("-", "−")


def _table(table: TextTable, titled: bool = True) -> str:
    """In a box that scrolls by itself. The paper's own columns are set apart."""
    kinds = [' class="paper"' if column == "paper" else "" for column in table.columns]
    prose = ' class="prose"' if table.prose else ""
    head = "".join(f'<th scope="col"{kind}>{_text(c)}</th>' for c, kind in zip(table.columns, kinds, strict=True))
    rows = []
    for first, *others in table.rows:
        cells = "".join(
            f"<td{kind}>{_badge(cell) if cell in SIGNS else _text(cell)}</td>"
            for cell, kind in zip(others, kinds[1:], strict=True)
        )
        rows.append(f'<tr><th scope="row">{_text(first)}</th>{cells}</tr>')
    caption = f"<caption>{_text(table.title)}</caption>" if titled and table.title else ""
    note = f'<p class="note">{_text(table.note)}</p>' if table.note else ""
    body = f"<table{prose}>{caption}<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    box = f'class="scroll" tabindex="0" role="region" aria-label="{_text(table.title or "table")}"'
    return f"<div {box}>{body}</div>{note}"

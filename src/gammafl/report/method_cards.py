"""Cards of methods for a terminal: everything that the registry knows about a method."""

from collections.abc import Sequence
from textwrap import fill

from gammafl.methods.registry import Entry, entry_named
from gammafl.report.tables import TextTable

WIDTH, INDENT = 118, 12


def card(entry: Entry) -> str:
    """The card of a method: what it does, its settings, its cost, and the property that it promises.

    >>> print(card(entry_named("fedavg")))
    fedavg (FedAVG)
    <BLANKLINE>
    Sends the whole update.
    <BLANKLINE>
    values   "f32", or fewer bits with error feedback: "f16", "bf16", "8bit", "4bit", "2bit"
    <BLANKLINE>
    defaults    values=f32
    tuning      nothing to tune
    cost        O(d): a copy
    state       none
    property    exact: nothing is left out; with 16-bit floats a relative error of 2⁻¹¹
    published   McMahan et al., AISTATS 2017
    use         gammafl run logistic-mini --method fedavg:values=…
    """
    text = entry.about.partition(">>>")[0].strip()
    lines = [f"{word:{INDENT}}{line}" for word, line in facts(entry).items() if line]
    folded = [fill(line, WIDTH, subsequent_indent=" " * INDENT) for line in lines]
    return "\n".join([f"{entry.name} ({entry.label})", "", *([text, ""] if text else []), *folded])


def facts(entry: Entry) -> dict[str, str]:
    """First word → the rest of each line of a card; empty where there is nothing to say."""
    first = next(iter(entry.parameters), None)
    leader = entry_named(entry.follows).label if entry.follows else ""
    return {
        "defaults": ", ".join(f"{key}={value}" for key, value in entry.defaults.items()),
        "needs": ", ".join(entry.needs),
        "range": "; ".join(f"{key}: {', '.join(map(str, values))}" for key, values in entry.ranges.items()),
        "tuning": entry.tuned,
        "traffic": f"in a comparison it keeps as many entries as {leader}" if leader else "",
        "cost": entry.cost,
        "state": entry.state,
        "property": entry.promise.text if entry.promise else "",
        "published": entry.citation,
        "use": f"gammafl run logistic-mini --method {entry.name}" + (f":{first}=…" if first else ""),
    }


def methods_table(entries: Sequence[Entry]) -> TextTable:
    """A table with a line for each method."""
    rows = [[e.name, e.label, e.what, e.state or "–", e.citation] for e in entries]
    note = "gammafl methods NAME shows a method's card. Use a method of your own with --method file.py:function."
    return TextTable("methods", ["name", "label", "what it does", "state", "published in"], rows, note, prose=True)

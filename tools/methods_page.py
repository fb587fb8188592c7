"""Writes docs/methods.md from the registry, the tests and the measured costs: `python -m tools.methods_page`."""

from pathlib import Path

from benchmarks import methods as cost
from gammafl.methods.registry import OURS, Entry, entry_named
from gammafl.report.method_cards import facts
from tests.methods.proofs import reference_tests
from tools.markdown import table

ROOT = Path(__file__).parent.parent
PAGE, MEASURED = ROOT / "docs/methods.md", ROOT / "benchmarks/output/methods.json"
BATTERY = "tests/methods/test_battery.py"

HEAD = """# Methods

<!-- Written by `make methods-page` from the registry; a test holds them equal. Change src/gammafl/methods/. -->

This page lists every method of gammafl. `gammafl methods NAME` prints the card of a method.
`gammafl compare logistic-mini --methods all` runs all of them, and `gammafl pareto logistic-mini --methods all` runs
each over its range. Each method is tested

- against independent references: its paper's equation in plain numpy, or recorded outputs of public code;
- for its declared property, by [one test]({battery}) for all methods: `test_the_error_is_at_most_what_the_card_says`,
  and `test_a_random_method_is_right_on_average`;
- by a [battery]({battery}) that all methods share: hostile vectors, conservation, the wire format, threads, keys,
  stopped and resumed runs, a description from which the other side builds the method, Flower, and budgets.

A [method of your own](own-method.md) takes part in all this when it is registered. In the tables, v is the vector to
send, C(v) is what is sent, and d is the number of entries.
"""

SETTINGS = """
## Settings

The settings that are worth trying, and how the defaults were found.
"""

COST = """
## Cost

The CPU time of one thread for compression with its memory, and for encoding, compared with the fused threshold, which
is one pass over the vector. The methods take turns, so compare the ratios; the times are those of one machine.
`make methods-cost` measures them.
"""


def page() -> str:
    """The whole page."""
    entries, tests = [entry_named(name) for name in OURS], reference_tests()
    columns = ["method", "what it does", "reference tests", "property", "state", "cost"]
    parts = [
        HEAD.format(battery=f"../{BATTERY}"),
        table(columns, [_what(entry, tests[entry.name]) for entry in entries]),
        SETTINGS,
        table(["method", "published in", "defaults", "range", "tuning"], [_settings(entry) for entry in entries]),
        COST,
    ]
    measured = cost.read(MEASURED)
    parts += [cost.table(dim, figures).markdown() for dim, figures in measured.items()]
    return "\n".join(parts if measured else [*parts, "Not measured yet.\n"])


def _what(entry: Entry, tests: list[tuple[str, str]]) -> list[str]:
    of = facts(entry)
    links = [f"[{test.removeprefix('test_').replace('_', ' ')}](../{path})" for path, test in tests]
    return [f"`{entry.name}`", entry.what, "; ".join(links), of["property"], of["state"], of["cost"]]


def _settings(entry: Entry) -> list[str]:
    of = facts(entry)
    return [f"{entry.label}", entry.citation, of["defaults"] or "–", of["range"] or "–", of["tuning"]]


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")

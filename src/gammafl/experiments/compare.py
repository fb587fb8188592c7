"""All methods side by side: γ-FedHT decides how much is sent, Top-k gets the k that sends as many entries.

This is the paper's equal traffic, its Top-(k_mean) (Table III); STC follows γ-FedHT-Q in the same way (Table
IV). In measured bytes they differ by a few per cent, since positions that are spread evenly over the rounds
cost more. HT keeps its calibrated λ, as in the paper, and FedAVG sends everything. A comparison is a study whose grid
is made on the command line.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import mean
from typing import Any

from gammafl.core.errors import InputError, require
from gammafl.core.names import did_you_mean
from gammafl.experiments.claims import scale_of
from gammafl.experiments.grid import TASK, Factor, Level, Study
from gammafl.experiments.row_charts import training_chart
from gammafl.experiments.rows import Row, Rows
from gammafl.federated.link import seconds_to, within
from gammafl.federated.records import Summary
from gammafl.files.reading import checked
from gammafl.methods.registry import entry_named, names, split_expression
from gammafl.report.tables import TextTable, TimesTo, comparison_table

TARGET = "target"


def check_methods(methods: Sequence[str]) -> list[str]:
    """`methods` in the order of the tables, with the leaders that the followers among them need."""
    require(bool(methods), f"--methods needs at least one of {', '.join(names())}")
    for method in methods:
        if leader := entry_named(method).follows:
            entry_named(leader)  # both are there, or one line says so
    leaders = [leader for method in methods if (leader := _leader(method)) and leader not in methods]
    order = [*names(), *(split_expression(method)[0] for method in methods)]
    return sorted(dict.fromkeys([*methods, *leaders]), key=lambda method: order.index(split_expression(method)[0]))


def _leader(method: str) -> str | None:
    """The method that decides how many entries `method` keeps; None if it does itself, or was told."""
    name, settings = split_expression(method)
    return None if settings.keys() & {"k", "keep"} else entry_named(name).follows


def comparison(base: Mapping[str, Any], methods: Sequence[str]) -> Study:
    """The study of `methods` on the configuration `base`, which names the task."""
    chosen = check_methods(methods)
    task = Factor(TASK, (task_level(base),))
    levels = tuple(Level(m, method_settings(base, m, chosen), follows=_leader(m)) for m in chosen)
    return replace(COMPARE, factors=(task, Factor("method", levels)))


def task_level(base: Mapping[str, Any]) -> Level:
    """The task of a study that is made on the command line, with all that its methods share."""
    return Level(base["task"], {key: value for key, value in base.items() if key != "compression"})


def method_settings(base: Mapping[str, Any], method: str, methods: Sequence[str]) -> dict[str, Any]:
    """Those settings of methods in `base` that this one has; one that no method has is an error."""
    given = dict(base.get("compression", {}))
    known = {m: entry_named(m).parameters for m in methods}
    for key in given:
        if not any(key in parameters for parameters in known.values()):
            options = dict.fromkeys(name for parameters in known.values() for name in parameters)
            raise InputError(
                f"no compared method has a setting {key!r}{did_you_mean(key, options)}: {', '.join(options)}"
            )
    return {"method": method, "compression": {key: value for key, value in given.items() if key in known[method]}}


def summaries_of(rows: Rows) -> list[Summary]:
    """The summaries of the runs, in the order of the table; a method is called as it was asked for."""
    made = []
    for method in rows.levels["method"]:
        for row in rows.pick(method=method):
            table = {key: value for key, value in row.figures.items() if key != "last_loss"}
            made.append(checked(Summary, {**table, "task": rows.task, "method": method, "seed": row.seed}))
    return made


def _table(rows: Rows) -> TextTable | None:
    summaries = summaries_of(rows)
    if not summaries:
        return None
    first = summaries[0]
    title = f"{first.task}: {first.participants} of {first.clients} clients a round, d = {first.dim:,}"
    return comparison_table(title, summaries, times_to(rows))


def with_target(rows: Rows, target: float | None) -> Rows:
    """`rows`, whose table shows the seconds on the link until the metric reaches `target`."""
    return rows if target is None else replace(rows, settings={**rows.settings, TARGET: target})


def times_to(rows: Rows) -> TimesTo | None:
    """Seconds on the link to a common target; None without a link, or where nothing says what the target is."""
    dense = [row.figures["last_mean"] for row in rows.pick(method="fedavg")]
    linked = all(row.figures.get("link_seconds") is not None for row in rows.finished)
    if not linked or not (dense or TARGET in rows.settings):
        return None
    higher = scale_of(rows)[1] != "perplexity"
    target = float(rows.settings.get(TARGET) or within(mean(dense), higher))
    reached = {
        method: [seconds_to(_curve(row), target, higher) for row in rows.pick(method=method)]
        for method in rows.levels["method"]
    }
    return TimesTo(target, reached)


def _curve(row: Row) -> list[tuple[float, float]]:
    """The metric over seconds on the link."""
    return list(zip(row.curve["link_seconds"], row.curve["metric"], strict=True))


COMPARE = Study(
    "compare",
    "All methods at equal traffic",
    (Factor(TASK, ()), Factor("method", ())),
    tables=(_table,),
    charts=(training_chart("comparison", "all methods at equal traffic"),),
    alone=True,
)
"""What the rows of any comparison say; `comparison` gives it a grid."""

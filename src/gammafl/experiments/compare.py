"""`gammafl compare`: several methods on one task. A comparison is a study whose grid is made on the command line.

γ-FedHT decides how many entries are sent, and Top-k gets the k that sends as many entries. This is the paper's equal
traffic, its Top-(k_mean) (Table III). STC follows γ-FedHT-Q in the same way (Table IV). Their measured bytes differ by
a few per cent, because positions that are spread evenly over the rounds take more bits. HT keeps its calibrated λ, as
in the paper, and FedAVG sends everything.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import mean
from typing import Any

from gammafl.core.errors import InputError, require
from gammafl.core.names import did_you_mean
from gammafl.experiments.claims import Place
from gammafl.experiments.columns import Column, GridTable, best, mean_of_seeds, metric, size
from gammafl.experiments.grid import TASK, Factor, Level, Study
from gammafl.experiments.levels import leader_of
from gammafl.experiments.row_charts import compresses_down, training_chart
from gammafl.experiments.rows import Rows
from gammafl.federated.link import seconds_to, within
from gammafl.federated.records import Summary
from gammafl.federated.units import show_duration, show_metric
from gammafl.files.reading import checked
from gammafl.methods.registry import entry_named, label_of, names, split_expression
from gammafl.report.tables import PICKED, SPREAD, counts_of, times_less

TARGET = "target"
UP, DOWN, DENSE = "uplink_bytes_per_client", "downlink_bytes_per_client", "dense_bytes_per_client"


def check_methods(methods: Sequence[str]) -> list[str]:
    """Sorts `methods` in the order of the tables, and adds the methods that they follow. An unknown one is an error."""
    require(bool(methods), f"--methods needs at least one of {', '.join(names())}")
    for method in methods:
        if leader := entry_named(method).follows:
            entry_named(leader)  # an `InputError` if it is not registered
    leaders = [leader for method in methods if (leader := leader_of(method)) and leader not in methods]
    order = [*names(), *(split_expression(method)[0] for method in methods)]
    return sorted(dict.fromkeys([*methods, *leaders]), key=lambda method: order.index(split_expression(method)[0]))


def comparison(base: Mapping[str, Any], methods: Sequence[str]) -> Study:
    """The study of `methods` on the configuration `base`, which names the task."""
    chosen = check_methods(methods)
    task = Factor(TASK, (task_level(base),))
    levels = tuple(Level(m, method_settings(base, m, chosen), follows=leader_of(m)) for m in chosen)
    return replace(COMPARE, factors=(task, Factor("method", levels)))


def task_level(base: Mapping[str, Any]) -> Level:
    """The task of a study that is made on the command line, with all settings that its methods share."""
    return Level(base["task"], {key: value for key, value in base.items() if key != "compression"})


def method_settings(base: Mapping[str, Any], method: str, methods: Sequence[str]) -> dict[str, Any]:
    """The compression settings in `base` that `method` has. A setting that none of `methods` has is an error."""
    given = dict(base.get("compression", {}))
    known = {m: entry_named(m).parameters for m in methods}
    for key in given:
        if not any(key in parameters for parameters in known.values()):
            options = dict.fromkeys(name for parameters in known.values() for name in parameters)
            raise InputError(
                f"no compared method has a setting {key!r}{did_you_mean(key, options)}; they have {', '.join(options)}"
            )
    return {"method": method, "compression": {key: value for key, value in given.items() if key in known[method]}}


def summaries_of(rows: Rows) -> list[Summary]:
    """The summaries of the runs, in the order of the table. Each method has the name that the user gave."""
    made = []
    for method in rows.levels["method"]:
        for row in rows.pick(method=method):
            table = {key: value for key, value in row.figures.items() if key != "last_loss"}
            made.append(checked(Summary, {**table, "task": rows.task, "method": method, "seed": row.seed}))
    return made


def with_target(rows: Rows, target: float | None) -> Rows:
    """`rows` with a target: their table then shows the seconds on the link until the metric reaches `target`."""
    return rows if target is None else replace(rows, settings={**rows.settings, TARGET: target})


def target_of(rows: Rows) -> float | None:
    """The metric that runs must reach on the link: the user's target, or within 1% of FedAVG's. None without a link."""
    dense = [row.figures["last_mean"] for row in rows.pick(method="fedavg")]
    if not _linked(rows) or not (dense or TARGET in rows.settings):
        return None
    return float(rows.settings.get(TARGET) or within(mean(dense), rows.higher_is_better))


def _linked(rows: Rows) -> bool:
    return all(row.figures.get("link_seconds") is not None for row in rows.finished)


def _time_to_target(rows: Rows, cell: Place) -> str:
    """The mean time over the seeds; '–' if a seed did not reach the target."""
    target = target_of(rows)
    assert target is not None
    curves = [zip(row.curve["link_seconds"], row.curve["metric"], strict=True) for row in rows.pick(**cell)]
    reached = [seconds_to(list(curve), target, rows.higher_is_better) for curve in curves]
    return "–" if None in reached else show_duration(mean(seconds for seconds in reached if seconds is not None))


def _full(rows: Rows) -> float:
    """The bytes that a client sends with FedAVG."""
    dense = rows.by_seed(UP, method="fedavg")
    return dense.mean if dense else mean(row.figures[DENSE] for row in rows.finished)


def _both_less(rows: Rows, cell: Place) -> str:
    """How many times fewer bytes both directions take than FedAVG, which sends everything both ways."""
    return times_less(2 * _full(rows), rows.by_seed(DOWN, **cell).mean + rows.by_seed(UP, **cell).mean)


def _note(rows: Rows) -> str:
    pairs = [(method, entry_named(method).follows) for method in rows.levels["method"] if method in names()]
    told = [f" {label_of(method)} keeps as many entries as {label_of(leader)}." for method, leader in pairs if leader]
    return (
        f"{counts_of([len(rows.seeds)], 'seed')}, {rows.figure('iterations')} iterations. {SPREAD}. {PICKED}."
        f" Uplink is measured from encoded messages.{''.join(told)}{' Times are by a virtual clock.' * _linked(rows)}"
    )


def _title(rows: Rows) -> str:
    taking_part = f"{rows.figure('participants')} of {rows.figure('clients')} clients a round"
    return f"{rows.task}: {taking_part}, d = {rows.figure('dim'):,}"


TABLE = GridTable(
    ("method",),
    (
        metric("last_mean", lambda rows: f"{rows.figure('metric')}, last {rows.figure('last_count')}"),
        metric("final", "final"),
        metric("best", best),
        metric("averaged", "averaged model"),
        mean_of_seeds("kept_fraction", "kept", lambda kept: f"{100 * kept:.2f}%"),
        size(UP, "uplink per client"),
        Column("less than FedAVG", lambda rows, cell: times_less(_full(rows), rows.by_seed(UP, **cell).mean)),
        size(DOWN, "downlink per client", when=compresses_down),
        Column("both, less than FedAVG", _both_less, when=compresses_down),
        mean_of_seeds("link_seconds", "time on the link", show_duration, when=_linked),
        Column(
            lambda rows: f"time to {show_metric(rows.figure('metric'), target_of(rows) or 0.0)}",
            _time_to_target,
            when=lambda rows: target_of(rows) is not None,
        ),
    ),
    _note,
    title=_title,
)
COMPARE = Study(
    "compare",
    "Methods side by side",
    (Factor(TASK, ()), Factor("method", ())),
    tables=(TABLE,),
    charts=(training_chart("comparison", "methods side by side"),),
    alone=True,
)
"""The table and the chart of every comparison. The function `comparison` gives it a grid."""

"""All methods side by side: γ-FedHT decides how much is sent, Top-k gets the k that sends as many entries.

This is the paper's equal traffic, its Top-(k_mean) (Table III); STC follows γ-FedHT-Q in the same way (Table
IV). In measured bytes they differ by a few per cent, since positions that are spread evenly over the rounds
cost more. HT keeps its calibrated λ, as in the paper, and FedAVG sends everything.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from gammafl.config.layers import make_config
from gammafl.config.schema import RunConfig
from gammafl.core.errors import InputError, require
from gammafl.core.names import did_you_mean
from gammafl.experiments.pool import Job, run_jobs
from gammafl.federated.link import seconds_to, within
from gammafl.federated.records import RoundRecord, Summary
from gammafl.files.disk_errors import storing
from gammafl.methods.registry import entry_named, names, split_expression
from gammafl.report.tables import TextTable, TimesTo, comparison_table
from gammafl.runs.directory import RunDirectory
from gammafl.runs.progress import Progress


@dataclass(frozen=True)
class Comparison:
    """A finished comparison: its table, and where its files are."""

    table: TextTable
    picture: Path
    summaries: list[Summary]


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


def folder(method: str, seed: int) -> str:
    """The directory of a run within a comparison."""
    return f"{re.sub(r'[^0-9A-Za-z._-]+', '-', Path(method).name)}-seed{seed}"


def compare(
    base: Mapping[str, Any],
    methods: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    workers: int,
    progress: Progress,
    data_dir: Path | None = None,
    target: float | None = None,
) -> Comparison:
    """Runs `methods` × `seeds` of the configuration `base` in `out`; what is there already is not run again.

    With a link, the table has the seconds until the metric reaches `target`, by default within 1% of FedAVG's last
    mean.
    """
    methods = check_methods(methods)
    configs = {(m, s): make_config(_layer(base, m, methods), {"method": m, "seed": s}) for m in methods for s in seeds}
    done: dict[Path, Summary] = {}

    def job(method: str, config: RunConfig) -> Job:
        return Job(config, out / folder(method, config.seed), data_dir)

    def follow(finished: Job, summary: Summary) -> list[Job]:
        done[finished.path] = summary
        seed = finished.config.seed
        led = [m for m in methods if (leader := _leader(m)) and out / folder(leader, seed) == finished.path]
        return [job(m, with_kept(configs[m, seed], summary)) for m in led]

    run_jobs([job(m, config) for (m, _), config in configs.items() if not _leader(m)], follow, workers, progress)
    finished = [(method, done[out / folder(method, seed)]) for method in methods for seed in seeds]
    return _report(out, [summary.model_copy(update={"method": method}) for method, summary in finished], target)


def _layer(base: Mapping[str, Any], method: str, methods: Sequence[str]) -> dict[str, Any]:
    """`base` with those settings of methods that this one has; one that no method has is an error."""
    given = dict(base.get("compression", {}))
    known = {m: entry_named(m).parameters for m in methods}
    for key in given:
        if not any(key in parameters for parameters in known.values()):
            options = dict.fromkeys(name for parameters in known.values() for name in parameters)
            raise InputError(
                f"no compared method has a setting {key!r}{did_you_mean(key, options)}: {', '.join(options)}"
            )
    return {**base, "compression": {key: value for key, value in given.items() if key in known[method]}}


def with_kept(config: RunConfig, leader: Summary) -> RunConfig:
    """`config` with the k that keeps as many entries an upload as `leader` did on average."""
    k = max(1, round(leader.kept_per_upload))
    return make_config(config.model_dump(exclude_none=True), {"compression": {"k": k}})


def times_to(
    target: float | None, summaries: Sequence[Summary], runs: Mapping[str, Sequence[Sequence[RoundRecord]]]
) -> TimesTo | None:
    """Seconds on the link to a common target; None without a link, or where nothing says what the target is."""
    if any(summary.link_seconds is None for summary in summaries):
        return None
    dense = [summary.last_mean for summary in summaries if summary.method == "fedavg"]
    if target is None and not dense:
        return None
    higher = summaries[0].best == max(r.metric for r in runs[summaries[0].method][0] if r.metric is not None)
    wanted = within(mean(dense), higher) if target is None else target
    reached = {m: [seconds_to(records, wanted, higher) for records in of_seeds] for m, of_seeds in runs.items()}
    return TimesTo(wanted, reached)


def _report(out: Path, summaries: list[Summary], target: float | None) -> Comparison:
    from gammafl.report.plots import plot_comparison

    first = summaries[0]
    title = f"{first.task}: {first.participants} of {first.clients} clients a round, d = {first.dim:,}"
    runs: dict[str, list[list[RoundRecord]]] = {}
    for summary in summaries:
        records = RunDirectory(out / folder(summary.method, summary.seed)).records()
        runs.setdefault(summary.method, []).append(records)
    table = comparison_table(title, summaries, times_to(target, summaries, runs))
    picture = out / "comparison.png"
    with storing(out, "run it again: what is finished is kept"):
        tables = json.dumps([summary.table() for summary in summaries], indent=2)
        (out / "comparison.json").write_text(tables + "\n", "utf-8")
        (out / "comparison.md").write_text(table.markdown(), "utf-8")
        plot_comparison(runs, first.metric, title, picture)
    return Comparison(table, picture, summaries)

"""All methods side by side: γ-FedHT decides how much is sent, Top-k gets the k that sends as many entries.

This is the paper's equal traffic, its Top-(k_mean) (Table III); STC follows γ-FedHT-Q in the same way (Table
IV). In measured bytes they differ by a few per cent, since positions that are spread evenly over the rounds
cost more. HT keeps its calibrated λ, as in the paper, and FedAVG sends everything.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gammafl.config import RunConfig, make_config
from gammafl.core.errors import InputError
from gammafl.core.names import LABELS, METHOD_NAMES, did_you_mean
from gammafl.report.progress import Progress
from gammafl.report.tables import TextTable, comparison_table
from gammafl.runtimes.run_directory import RunDirectory
from gammafl.runtimes.storing import storing
from gammafl.studies.pool import Job, Summary, run_jobs

FOLLOWS = {"top-k": "gamma-fedht", "stc": "gamma-fedht-q"}
"""Method → the method whose traffic it is given."""


@dataclass(frozen=True)
class Comparison:
    """A finished comparison: its table, and where its files are."""

    table: TextTable
    picture: Path
    summaries: list[Summary]


def check_methods(names: Sequence[str]) -> list[str]:
    """`names` in the order of the tables, with the leaders that the followers among them need."""
    for name in names:
        if name not in METHOD_NAMES:
            raise InputError(
                f"no method {name!r}{did_you_mean(name, METHOD_NAMES)}; they are {', '.join(METHOD_NAMES)}"
            )
    if not names:
        raise InputError(f"--methods needs at least one of {', '.join(METHOD_NAMES)}")
    wanted = set(names) | {FOLLOWS[name] for name in names if name in FOLLOWS}
    return [name for name in METHOD_NAMES if name in wanted]


def compare(
    base: Mapping[str, Any],
    methods: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    workers: int,
    progress: Progress,
    data_dir: Path | None = None,
) -> Comparison:
    """Runs `methods` × `seeds` of the configuration `base` in `out`; what is there already is not run again."""
    methods = check_methods(methods)
    configs = {(m, s): make_config(base, {"method": m, "seed": s}) for m in methods for s in seeds}
    leaders = [Job(configs[m, s], _path(out, configs[m, s]), data_dir) for m, s in configs if m not in FOLLOWS]

    def follow(job: Job, summary: Summary) -> list[Job]:
        followers = [m for m in methods if FOLLOWS.get(m) == job.config.method]
        matched = [with_kept(configs[m, job.config.seed], summary) for m in followers]
        return [Job(config, _path(out, config), data_dir) for config in matched]

    done = run_jobs(leaders, follow, workers, progress)
    summaries = sorted(done, key=lambda s: (METHOD_NAMES.index(s["method"]), s["seed"]))
    return _report(out, summaries)


def with_kept(config: RunConfig, leader: Summary) -> RunConfig:
    """`config` with the k that keeps as many entries an upload as `leader` did on average."""
    k = max(1, round(leader["kept_per_upload"]))
    return make_config(config.model_dump(exclude_none=True), {"compression": {"k": k}})


def _path(out: Path, config: RunConfig) -> Path:
    return out / f"{config.method}-seed{config.seed}"


def _report(out: Path, summaries: list[Summary]) -> Comparison:
    from gammafl.report.plots import plot_comparison

    first = summaries[0]
    title = f"{first['task']}: {first['participants']} of {first['clients']} clients a round, d = {first['dim']:,}"
    table = comparison_table(title, summaries)
    runs = {
        method: [RunDirectory(out / f"{method}-seed{s['seed']}").records() for s in summaries if s["method"] == method]
        for method in LABELS
        if any(s["method"] == method for s in summaries)
    }
    picture = out / "comparison.png"
    with storing(out, "run it again: what is finished is kept"):
        (out / "comparison.json").write_text(json.dumps(summaries, indent=2) + "\n")
        (out / "comparison.md").write_text(table.markdown())
        plot_comparison(runs, first["metric"], title, picture)
    return Comparison(table, picture, summaries)

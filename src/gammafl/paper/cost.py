"""What compression costs against d, and the exponent p of seconds ∝ d^p: the O(d) of the abstract."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gammafl.experiments.claims import Claim, Part
from gammafl.experiments.grid import Factor, Level, Study, Table, Trial
from gammafl.experiments.intervals import interval, slope
from gammafl.experiments.results import Results
from gammafl.files.atomic import read_json
from gammafl.paper.comparisons import warning_of
from gammafl.report.pictures import Line, LinePicture, Panel, Picture
from gammafl.report.tables import TextTable
from gammafl.runs.progress import Progress, Status

DIMS = ("10000", "100000", "1000000", "10000000", "100000000")
QUICK_DIMS = ("10000", "100000", "1000000")
FUSED, TOP_K = "γ-FedHT, fused", "Top-k, ours, with error feedback"
TORCH_TOP_K = "torch.topk with error feedback"
LINEAR = 1.1
"""The exponent that still counts as linear: large vectors leave the caches, which costs more than a factor."""


@dataclass(frozen=True)
class CostJob:
    """The contenders of `gammafl bench compress` at one d, one thread; a repetition is a seed."""

    dim: int
    seed: int
    runs: Path
    turns: int = 5

    @property
    def path(self) -> Path:
        return self.runs / f"cost-d{self.dim}-repetition{self.seed}"

    def seconds(self) -> float:
        """Eight contenders; those of torch take about 40 ns an element."""
        return 1 + 1.5e-7 * self.dim * (self.turns + 1)

    def finished(self) -> dict[str, Any] | None:
        return read_json(self.path / "summary.json")

    def outcome(self, summary: dict[str, Any]) -> tuple[dict[str, Any], dict[str, list[float]]]:
        return summary["figures"], {}

    def run(self, progress: Progress) -> dict[str, Any]:
        from gammafl.bench.compress import seconds_of
        from gammafl.files.atomic import write_atomically

        summary = {"settings": asdict(self) | {"runs": ""}, "figures": seconds_of(self.dim, 1, self.turns)}
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomically(
            self.path / "summary.json", (json.dumps(summary, indent=1, ensure_ascii=False) + "\n").encode()
        )
        progress.update(Status(self.path.name, 1, 1, "seconds", summary["figures"][FUSED], 1e-3, 0, True))
        return summary


def _make_job(trial: Trial, leader: Table | None, runs: Path, data_dir: Path | None) -> CostJob:
    return CostJob(int(trial.settings["dim"]), trial.seed, runs)


def dims(results: Results) -> list[int]:
    return sorted({int(run.cell["d"]) for run in results.runs})


def exponents(results: Results, method: str) -> dict[int, float]:
    """Repetition → p of seconds ∝ d^p."""
    each = [results.by_seed(method, d=str(d)) for d in dims(results)]
    if len(each) < 2:
        return {}
    seeds = set.intersection(*(set(one) for one in each))
    return {seed: slope(dims(results), [one[seed] for one in each]) for seed in seeds}


def _linear(results: Results) -> list[Part]:
    return [Part(f"exponent of {FUSED}", exponents(results, FUSED), "below", LINEAR)]


def _cheaper(other: str, results: Results, times: float = 1.0) -> list[Part]:
    """At each d, `other` takes more than `times` as long; in log10, where ratios are nearly normal."""
    parts = []
    for d in dims(results):
        theirs, ours = (results.by_seed(method, d=str(d)) for method in (other, FUSED))
        ratio = {seed: float(np.log10(theirs[seed] / ours[seed])) for seed in ours.keys() & theirs.keys()}
        parts.append(Part(f"log10 of times as long, d={d:,}", ratio, "above", float(np.log10(times))))
    return parts


def _contenders(results: Results) -> list[str]:
    return list(results.runs[0].figures) if results.runs else []


def _table(results: Results) -> list[TextTable]:
    rows = []
    for name in _contenders(results):
        times = [np.mean(list(results.by_seed(name, d=str(d)).values())) for d in dims(results)]
        found = interval(list(exponents(results, name).values()))
        fitted = f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]" if found.count > 1 else "–"
        rows.append([name, *(f"{1e3 * seconds:.3g}" for seconds in times), fitted])
    columns = ["", *(f"d={d:,}" for d in dims(results)), "exponent p of d^p"]
    note = "milliseconds, median of the turns, mean of the repetitions; one thread, 0.1% kept"
    return [TextTable("cost: compression with error feedback", columns, rows, note)]


def _pictures(results: Results) -> list[Picture]:
    x = [float(d) for d in dims(results)]
    lines = [
        Line(name, x, [1e3 * float(np.mean(list(results.by_seed(name, d=str(d)).values()))) for d in dims(results)])
        for name in _contenders(results)
    ]
    panel = Panel("", "d: elements (log scale)", "milliseconds (log scale)", lines, log_x=True, log_y=True)
    title = f"compression with error feedback, one thread, 0.1% kept: mean of {len(results.seeds)} repetitions"
    return [LinePicture("cost", warning_of(results) + title, [panel])]


COST = Study(
    "cost",
    "Compression time against d (gammafl bench compress), with the fitted exponent",
    (),
    (Factor("d", tuple(Level(d, {"dim": int(d)}) for d in DIMS), QUICK_DIMS),),
    (
        Claim(f"γ-FedHT's compression is O(d) (exponent below {LINEAR})", "abstract", _linear),
        Claim("Top-k with error feedback (torch.topk) takes longer", "Sec. I", lambda r: _cheaper(TORCH_TOP_K, r)),
        Claim("Our own, faster Top-k takes longer", "ours", lambda r: _cheaper(TOP_K, r)),
        Claim(
            "Top-k takes up to hundreds of times as long: at least 100 times at the largest d",
            "Sec. I",
            lambda r: _cheaper(TORCH_TOP_K, r, 100)[-1:],
        ),
    ),
    _table,
    _pictures,
    make_job=_make_job,
    further_tasks=(),
    alone=True,
    note="times are of this machine; let it do nothing else",
)

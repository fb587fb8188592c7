"""Measures the study `cost`. Its claims, tables and charts are in `gammafl.paper.cost`."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gammafl.experiments.grid import Trial
from gammafl.experiments.rows import Row
from gammafl.files.atomic import read_json, write_atomically
from gammafl.paper.cost import COST, FUSED
from gammafl.runs.progress import Progress, Status


@dataclass(frozen=True)
class CostJob:
    """Times the contenders of `benchmarks/compress.py` at one d, with one thread. A seed is a repetition."""

    dim: int
    seed: int
    runs: Path
    turns: int = 5

    @property
    def path(self) -> Path:
        return self.runs / f"cost-d{self.dim}-repetition{self.seed}"

    @property
    def config_digest(self) -> str:
        return f"{self.turns} turns"

    def finished(self) -> Row | None:
        summary = read_json(self.path / "summary.json")
        return None if summary is None else self._row(summary["figures"])

    def _row(self, figures: dict[str, Any]) -> Row:
        return Row(self.path.name, {}, self.seed, figures, config=self.config_digest)

    def run(self, progress: Progress) -> Row:
        from benchmarks.compress import seconds_of  # loads torch

        summary = {"settings": asdict(self) | {"runs": ""}, "figures": seconds_of(self.dim, 1, self.turns)}
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomically(
            self.path / "summary.json", (json.dumps(summary, indent=1, ensure_ascii=False) + "\n").encode()
        )
        progress.update(Status(self.path.name, 1, 1, "seconds", summary["figures"][FUSED], 1e-3, 0, True))
        return self._row(summary["figures"])


def _make_job(trial: Trial, leader: Row | None, runs: Path, data_dir: Path | None) -> CostJob:
    return CostJob(int(trial.settings["dim"]), trial.seed, runs)


MEASURED = replace(COST, make_job=_make_job, run_by="")

"""A run of the theory study: one method on one problem for T iterations, by the same round loop as all other runs."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from gammafl.config.schema import EvaluationSettings, NoAverage
from gammafl.core.errors import InputError
from gammafl.core.method import Method
from gammafl.core.stepsizes import Constant, Stepsize
from gammafl.core.theory import convex_bound, convex_stepsize, non_convex_bound
from gammafl.core.thresholds import Units
from gammafl.experiments.rows import POINTS, Row
from gammafl.files.atomic import read_json, write_atomically
from gammafl.methods.fedavg import fedavg
from gammafl.methods.gamma_fedht import gamma_fedht
from gammafl.methods.hard_threshold import hard_threshold
from gammafl.paper.problems import CONVEXITY, DIM, LARGEST, LOCAL_STEPS, PARTICIPANTS, Kind, Separable
from gammafl.runs.progress import Progress, Status

INITIAL = 0.5
"""λ_0 on the update; HT gets λ_0/√2, the largest value that γ-FedHT's threshold takes."""


@dataclass(frozen=True)
class TheoryJob:
    """A run that writes `runs`/NAME/summary.json. It is so short that an interrupted run simply starts again."""

    problem: Kind
    seed: int
    runs: Path
    method: str
    iterations: int
    units: Units = "update"

    @property
    def path(self) -> Path:
        parts = [self.problem, self.method, *([] if self.method == "fedavg" else [self.units])]
        return self.runs / "-".join(["theory", *parts, f"T{self.iterations}", f"seed{self.seed}"])

    @property
    def config_digest(self) -> str:
        return sha256(json.dumps(self.settings(), sort_keys=True).encode()).hexdigest()[:12]

    def finished(self) -> Row | None:
        summary = read_json(self.path / "summary.json")
        if summary is None:
            return None
        if summary.get("settings") != self.settings():
            raise InputError(f"{self.path} holds another run; choose another --out")
        return self._row(summary)

    def _row(self, summary: dict[str, Any]) -> Row:
        return Row(self.path.name, {}, self.seed, summary["figures"], summary["curve"], config=self.config_digest)

    def settings(self) -> dict[str, Any]:
        kept = {key: value for key, value in asdict(self).items() if key != "runs"}
        return kept | {"initial_threshold": self.initial}

    @cached_property
    def stepsize(self) -> Stepsize:
        """Theorem 1's; for Theorem 2 a constant that falls with √T, which its rate of 1/√T needs."""
        if self.problem == "strongly-convex":
            return convex_stepsize(LARGEST, CONVEXITY, LOCAL_STEPS)
        allowed = 1 / (8 * 2 * LARGEST * LOCAL_STEPS)
        return Constant(min(allowed, allowed * (1000 / self.iterations) ** 0.5))

    @property
    def initial(self) -> float:
        """λ_0 in the method's units. In gradient units, λ_0·γ_0 equals `INITIAL` with the stepsize γ_0 of T = 1000."""
        return INITIAL if self.units == "update" else INITIAL / float(replace(self, iterations=1000).stepsize(0))

    def compression(self) -> Method:
        if self.method == "fedavg":
            return fedavg()
        if self.method == "ht":
            return hard_threshold(threshold=self.initial / 2**0.5, units=self.units)
        return gamma_fedht(initial_threshold=self.initial, units=self.units)

    def run(self, progress: Progress) -> Row:
        task = Separable(self.problem)
        curve = self._simulate(task, progress)
        values = np.array([value for _, value in curve])
        tail = values[-max(1, len(values) // 10) :]  # less noise than in the last error alone
        error = tail.mean() if self.problem == "strongly-convex" else values.mean()
        figures = {"metric": task.metric, "error": float(error), "final": float(values[-1])}
        figures |= {"least": float(values.min()), "bound": self.bound(task), "stepsize": float(self.stepsize(0))}
        figures |= {key: getattr(task.constants(), key) for key in ("gradient_bound", "heterogeneity")}
        summary = {"settings": self.settings(), "figures": figures, "curve": _thinned(curve)}
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path / "summary.json", (json.dumps(summary, indent=1) + "\n").encode())
        return self._row(summary)

    def _simulate(self, task: Separable, progress: Progress) -> list[tuple[int, float]]:
        from gammafl.federated import rounds
        from gammafl.federated.in_process import InProcess
        from gammafl.federated.plan import Plan
        from gammafl.federated.residuals import ResidualStore

        method = self.compression()
        plan = Plan(
            task, method, self.stepsize, self.iterations, LOCAL_STEPS, PARTICIPANTS, self.seed,
            averaging=NoAverage(), evaluation=EvaluationSettings(every=max(1, self.iterations // LOCAL_STEPS // 1000)),
        )  # fmt: skip
        state, curve, kept = rounds.start(plan), [], 0
        for record in rounds.run_rounds(plan, state, InProcess(plan, ResidualStore(method, plan.dim))):
            if record.loss is not None:
                curve.append((record.iteration, record.loss))
            kept += record.kept
            if state.round % max(1, plan.rounds // 20) == 0 or state.round == plan.rounds:
                share = kept / (state.totals.uploads * DIM)
                at = (self.path.name, state.round, plan.rounds, task.metric, curve[-1][1])
                progress.update(Status(*at, share, state.totals.uplink_bytes, True))
        return curve

    def bound(self, task: Separable) -> float:
        """The theorem's right-hand side for this run, with λ_0 in the proof's units, or 0 for FedAVG."""
        start = task.initial_model(np.random.default_rng())
        initial = 0.0 if self.method == "fedavg" else replace(self, units="gradient").initial
        if self.problem == "strongly-convex":
            distance = float(np.square(start - task.optimum).sum())
            return convex_bound(task.constants(), DIM, initial, self.iterations, distance)
        gap = task.value(start) / len(task.client_sizes)  # f* is at least 0
        return non_convex_bound(task.constants(), DIM, initial, self.stepsize, self.iterations // LOCAL_STEPS, gap)


def _thinned(curve: Sequence[tuple[int, float]]) -> dict[str, list[float]]:
    """The curve at iterations that are spaced evenly on a log scale."""
    wanted = sorted({round(x) for x in np.geomspace(1, len(curve), min(POINTS, len(curve)))})
    return {
        "iteration": [curve[i - 1][0] for i in wanted],
        "error": [float(f"{curve[i - 1][1]:.5g}") for i in wanted],
    }

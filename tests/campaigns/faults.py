"""γ-FedHT on Logistic@FMNIST #C=2 where 30% of the uploads fail: as accurate as without faults, and nothing is lost.

    python -m tests.campaigns.faults [--seeds N] [--iterations T] [--task NAME] [--jobs J]

Four runs a seed: no faults; all kinds of faults in equal shares, with confirmation; the same faults with naive error
feedback, which takes an upload for counted once it has left (`faults.confirmed=false`); and as many clients that never
begin, where nothing can get lost. Of each, what clients computed is compared with what the server counted and the
residuals hold. Both the averaged model and the last evaluations are judged; the last variant shows what smaller rounds
alone do to them.
"""

import argparse
import multiprocessing
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gammafl.config.layers import make_config
from gammafl.config.schema import RunConfig
from gammafl.federated import rounds, server
from gammafl.federated.client import Upload
from gammafl.federated.faults import Faulty
from gammafl.federated.plan import Plan
from gammafl.federated.residuals import ResidualStore
from gammafl.federated.server import Accepted, ServerState
from gammafl.federated.summary import summarise
from gammafl.federated.task import LocalUpdate
from gammafl.runs.execute import make_plan
from gammafl.tasks.registry import settings_of
from tests.campaigns.common import Ticker, say, verdict

KINDS = ("absent", "killed", "lost", "late", "repeated", "corrupted", "not_finite")
TOTAL = 0.3
VARIANTS: dict[str, dict[str, Any]] = {
    "no faults": {},
    "30% faults": dict.fromkeys(KINDS, TOTAL / len(KINDS)),
    "30% faults, naive": dict.fromkeys(KINDS, TOTAL / len(KINDS)) | {"confirmed": False},
    "as many absent": {"absent": TOTAL * (len(KINDS) - 1) / len(KINDS)},  # of a repeated upload one counts
}
ROUNDING = 4 * float(np.finfo(np.float32).eps)
"""Of float32 sums, relative to all that was added up."""


@dataclass(frozen=True)
class Outcome:
    """Accuracies, and how much of the updates' norm is neither in the model nor in a residual."""

    variant: str
    seed: int
    last_mean: float
    averaged: float
    missing_share: float
    lost: float
    conserved: bool


class Watched(Faulty):
    """Keeps per client, in double precision: the sum of its updates, and of their magnitudes."""

    def __init__(self, plan: Plan, residuals: ResidualStore) -> None:
        super().__init__(plan, residuals)
        self.computed: NDArray[np.float64] = np.zeros((plan.clients, plan.dim))
        self.magnitudes: NDArray[np.float64] = np.zeros((plan.clients, plan.dim))

    def upload(self, client: int, local: LocalUpdate, round_number: int) -> list[Upload]:
        delta, made = local.delta.astype(np.float64), super().upload(client, local, round_number)
        if made:  # an update that was spoilt is refused by the client itself
            self.computed[client] += delta
            self.magnitudes[client] += np.abs(delta) + np.abs(self.residuals.residual(client))
        return made


def config_of(task: str, seed: int, variant: str, iterations: int | None) -> RunConfig:
    chosen: dict[str, Any] = {"task": task, "method": "gamma-fedht", "seed": seed, "partition": {"classes": 2}}
    chosen |= {"faults": VARIANTS[variant], "threads": 1} | ({"iterations": iterations} if iterations else {})
    return make_config(settings_of(task), chosen)


def run_one(job: tuple[str, int, str, int | None]) -> Outcome:
    """One run with the books kept."""
    _, seed, variant, _ = job
    plan = make_plan(config_of(*job), None, lambda text: None)
    residuals, state = ResidualStore(plan.method, plan.dim), rounds.start(plan)
    carrier = Watched(plan, residuals)
    counted = np.zeros((plan.clients, plan.dim))
    apply = server.apply

    def apply_and_count(
        state: ServerState, accepted: Sequence[Accepted], update_weights: Sequence[float], *rest: Any, **more: Any
    ) -> None:
        for upload, update in accepted:
            counted[upload.client][update.indices] += update.values
        apply(state, accepted, update_weights, *rest, **more)

    server.apply = apply_and_count
    try:
        records = list(rounds.run_rounds(plan, state, carrier))
    finally:
        server.apply = apply
    summary = summarise(plan, state.totals, records, 1.0)
    kept = counted + np.array([residuals.residual(client) for client in range(plan.clients)], np.float64)
    off = np.abs(carrier.computed - kept)
    missing = sum(record.missing for record in records) / (plan.rounds * plan.participants)
    lost = float(np.linalg.norm(off) / np.linalg.norm(carrier.computed))
    conserved = bool((off <= ROUNDING * carrier.magnitudes + 1e-30).all())
    assert summary.averaged is not None
    return Outcome(variant, seed, summary.last_mean, summary.averaged, missing, lost, conserved)


def available(task: str) -> str:
    """`task`, or logistic-mini where its data is not here: nothing is fetched."""
    from gammafl.tasks.data.catalogue import dataset_named
    from gammafl.tasks.registry import preset_named

    dataset = dataset_named(preset_named(task).dataset)
    if dataset.present() != "no":
        return task
    say(f"faults: the data of {task} is not in the cache (gammafl data get {dataset.name}); logistic-mini instead")
    return "logistic-mini"


def show(outcomes: list[Outcome]) -> None:
    say(f"  {'':20}{'last mean':>11}{'averaged':>11}{'missing':>10}{'lost':>10}   conserved")
    for variant in VARIANTS:
        mine = [o for o in outcomes if o.variant == variant]
        means = [float(np.mean([getattr(o, key) for o in mine])) for key in ("last_mean", "averaged", "missing_share")]
        lost = max(o.lost for o in mine)
        text = f"  {variant:20}{means[0]:>11.2%}{means[1]:>11.2%}{means[2]:>10.1%}{lost:>10.1e}"
        say(f"{text}   {'all' if all(o.conserved for o in mine) else 'no'}")


def differences(outcomes: list[Outcome], variant: str) -> dict[str, float]:
    """Mean over the seeds of variant − no faults, for both accuracies."""
    by = {(o.variant, o.seed): o for o in outcomes}
    seeds = sorted({o.seed for o in outcomes})
    return {
        key: float(np.mean([getattr(by[variant, s], key) - getattr(by["no faults", s], key) for s in seeds]))
        for key in ("last_mean", "averaged")
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="accuracy under faults")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=None)
    parser.add_argument("--task", default="logistic-fmnist")
    parser.add_argument("--tolerance", type=float, default=1.0, help="points of accuracy")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    ticker, task = Ticker("faults"), available(options.task)
    jobs = [(task, seed, variant, options.iterations) for seed in range(options.seeds) for variant in VARIANTS]
    outcomes: list[Outcome] = []
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for outcome in pool.imap_unordered(run_one, jobs):
            outcomes.append(outcome)
            ticker.tick(f"{len(outcomes)} of {len(jobs)} runs, last {outcome.variant} {outcome.averaged:.2%}")
    show(outcomes)
    changes = {variant: differences(outcomes, variant) for variant in list(VARIANTS)[1:]}
    for variant, change in changes.items():
        points = ", ".join(f"{key} {100 * value:+.2f} points" for key, value in change.items())
        say(f"  {variant}, against no faults: {points}")
    conserved = all(o.conserved for o in outcomes if o.variant != "30% faults, naive")
    confirmed = changes["30% faults"]
    passed = conserved and min(confirmed.values()) >= -options.tolerance / 100
    points = f"averaged {100 * confirmed['averaged']:+.2f} points, last mean {100 * confirmed['last_mean']:+.2f}"
    text = f"{len(outcomes)} runs of {task} #C=2, {'nothing lost' if conserved else 'updates lost'}, {points}"
    verdict("faults", passed, f"{text}, {ticker.elapsed():.0f} s")


if __name__ == "__main__":
    main()

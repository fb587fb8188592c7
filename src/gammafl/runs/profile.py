"""Where the time of a run goes: its phases, and the operators of local training."""

from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from gammafl.config.schema import RunConfig
from gammafl.core import threads
from gammafl.core.arrays import Vector
from gammafl.federated import rounds, server
from gammafl.federated.plan import Plan
from gammafl.federated.records import Summary
from gammafl.federated.sampling import Sampling
from gammafl.report.tables import TextTable
from gammafl.runs.execute import make_plan

OVERHEAD = {
    "sampling": "picking participants",
    "compression": "compressing and encoding",
    "server": "decoding and aggregating",
    "bookkeeping": "ledger, checkpoints, progress",
}
"""The phases besides local training, and what a run does in them."""

PHASES = {
    "setup": "loading data, making the model",
    "training": "local training",
    **OVERHEAD,
    "evaluation": "evaluating",
    "rest": "anything else",
}


def phases_table(summary: Summary) -> TextTable:
    """The phases of a finished run."""
    wall, fields = summary.wall_seconds, summary.table()
    seconds = {phase: fields[f"{phase}_seconds"] for phase in PHASES if phase != "rest"}
    seconds["rest"] = wall - sum(seconds.values())
    rows = [[PHASES[phase], f"{value:.2f} s", f"{100 * value / wall:.1f}%"] for phase, value in seconds.items()]
    overhead = sum(seconds[phase] for phase in OVERHEAD)
    return TextTable(
        f"{wall:.2f} s, {summary.rounds} rounds",
        ["phase", "time", "share"],
        rows,
        f"everything but local training, evaluation and set-up: {100 * overhead / wall:.1f}%",
    )


def operators_table(config: RunConfig, data_dir: Path | None, rounds_profiled: int = 3, shown: int = 8) -> TextTable:
    """torch's operators in the local training of the first rounds, on one thread."""
    plan = make_plan(config, data_dir, lambda _: None)
    model, before = rounds.start(plan).model, threads.count()
    threads.set_count(1)
    try:
        _train(plan, model, 0)
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            for number in range(rounds_profiled):
                _train(plan, model, number)
    finally:
        threads.set_count(before)
    found = [(event.key, event.self_cpu_time_total) for event in profiler.key_averages()]
    total = sum(time for _, time in found) or 1
    largest = sorted(found, key=lambda item: -item[1])[:shown]
    convolutions = sum(time for name, time in found if "conv" in name)
    return TextTable(
        f"operators of local training, {rounds_profiled} rounds, one thread",
        ["operator", "share"],
        [[name.removeprefix("aten::"), f"{100 * time / total:.1f}%"] for name, time in largest],
        f"convolutions: {100 * convolutions / total:.0f}% of the time"
        if convolutions
        else "compiled loops are no operators of torch, so they are not in this table",
    )


def _train(plan: Plan, model: Vector, number: int) -> None:
    participants = server.pick_participants(plan, number)
    rngs = Sampling(plan).streams(number, participants)
    with torch.random.fork_rng(devices=[]):
        for _ in plan.task.train(participants, model, server.round_stepsizes(plan, number), rngs):
            pass

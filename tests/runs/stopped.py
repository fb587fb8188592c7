"""Runs that stopped."""

from pathlib import Path

from gammafl.federated import rounds
from gammafl.federated.faults import carrier
from gammafl.federated.plan import Plan
from gammafl.federated.residuals import ResidualStore
from gammafl.runs import checkpoint
from gammafl.runs.checkpoint import Saved
from gammafl.runs.directory import RunDirectory


def stopped_run(plan: Plan, path: Path, after: int) -> RunDirectory:
    """A run that stopped after round `after`, with a checkpoint of that round and of the one before."""
    directory = RunDirectory(path)
    state, residuals = rounds.start(plan), ResidualStore(plan.method, plan.dim)
    with directory.open_ledger(0) as ledger:
        for record in rounds.run_rounds(plan, state, carrier(plan, residuals, None)):
            ledger.append(record)
            now = Saved(state, ledger_bytes=ledger.sync(), wall_seconds=1.0, fingerprint=0, **residuals.held())
            checkpoint.save(directory.checkpoints, now)
            if state.round == after:
                break
    return directory

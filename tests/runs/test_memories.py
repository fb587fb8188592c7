"""Memories with a part that waits for receipts: killed and resumed, with faults, on disk, they end the same."""

from pathlib import Path

import pytest

import gammafl as gf
from gammafl.config.schema import Faults
from gammafl.federated import rounds
from gammafl.federated.faults import carrier
from gammafl.federated.plan import Plan
from gammafl.federated.residuals import ResidualStore
from gammafl.runs import checkpoint
from gammafl.runs.checkpoint import Saved
from gammafl.runs.directory import RunDirectory
from tests.flower.test_shifts import MIRRORED
from tests.problems import plan_for
from tests.runs.stopped import stopped_run

FAULTS = Faults(lost=0.2, killed=0.1, corrupted=0.1)


def saved_run(plan: Plan, path: Path, budget: float, stop: int) -> bytes:
    """The model after all rounds, of a run that forgets all but its checkpoint after round `stop`."""
    path.mkdir()
    directory = RunDirectory(path)
    state, saved = rounds.start(plan), None
    while state.round < plan.rounds:
        residuals = ResidualStore(plan.method, plan.dim, budget, path / "residuals")
        if saved is not None:
            residuals.restore(saved.residuals, saved.lost, saved.paces, saved.others)
        with directory.open_ledger(saved.ledger_bytes if saved else 0) as ledger:
            for record in rounds.run_rounds(plan, state, carrier(plan, residuals, None)):
                ledger.append(record)
                if state.round == stop:
                    now = Saved(state, ledger_bytes=ledger.sync(), wall_seconds=1.0, fingerprint=0, **residuals.held())
                    checkpoint.save(directory.checkpoints, now)
                    break
        if state.round == stop:
            saved, stop = checkpoint.load(directory.checkpoints, plan, directory.ledger_file, print), 0
            assert saved is not None
            state = saved.state
    return state.model.tobytes()


@pytest.mark.parametrize("name", MIRRORED)
def test_a_run_that_is_stopped_and_resumed_ends_the_same(name: str, tmp_path: Path) -> None:
    plan = plan_for(MIRRORED[name], faults=FAULTS)
    unstopped = saved_run(plan, tmp_path / "a", float("inf"), 0)
    for number, stop in enumerate([1, 17, 30]):
        assert saved_run(plan, tmp_path / str(number), float("inf"), stop) == unstopped
    assert saved_run(plan, tmp_path / "disk", 200.0, 17) == unstopped


def test_a_checkpoint_without_the_servers_half_is_passed_over(tmp_path: Path) -> None:
    plan, other = plan_for(MIRRORED["shifts, sum"]), plan_for(gf.gamma_fedht_q(initial_threshold=0.1))
    directory = stopped_run(other, tmp_path, 2)
    with pytest.raises(gf.InputError, match="no checkpoint"):
        checkpoint.load(directory.checkpoints, plan, directory.ledger_file, print)


def test_what_must_know_which_uploads_counted_is_refused_where_clients_do_not_hear_of_it() -> None:
    with pytest.raises(gf.InputError, match="must know which uploads counted"):
        plan_for(MIRRORED["DGC"], faults=Faults(lost=0.1, confirmed=False))


@pytest.mark.parametrize("method", [gf.gamma_fedht_s(), gf.ef21(), gf.dgc()], ids=str)
def test_the_way_down_takes_no_memory_that_waits_for_receipts(method: gf.Method) -> None:
    with pytest.raises(gf.InputError, match="downlink"):
        plan_for(gf.fedavg(), downlink=method)


def test_a_runs_budget_would_undo_what_shifts_save() -> None:
    with pytest.raises(gf.InputError, match="64 kB/upload"):
        gf.Server(gf.gamma_fedht_s(), gf.Schedule(0.1, 100), like=1000, budget="1 MB/run")

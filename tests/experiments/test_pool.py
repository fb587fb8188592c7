"""Runs side by side: what follows from a finished run is run too, and a process that dies is named."""

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

import gammafl as gf
from gammafl.config.layers import make_config
from gammafl.experiments.pool import run_jobs
from gammafl.experiments.rows import Row
from gammafl.experiments.trial_runs import TrainingJob as Job
from gammafl.runs.progress import Silent

BASE = {"task": "logistic-mini", "iterations": 10, "evaluation": {"every": 1}}
DEADLY = """
import os, signal
SETTINGS = {"iterations": 10, "clients": 2}

def build(config):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def unexpected(job: Job, error: gf.DivergedError) -> None:
    raise error


@pytest.mark.parametrize("workers", [1, 2])
def test_a_finished_job_makes_the_next_ones_possible(workers: int, tmp_path: Path) -> None:
    first = Job(make_config(BASE, {"method": "ht"}), tmp_path / "first")
    rows: list[Row] = []

    def follow(job: Job, row: Row) -> list[Job]:
        rows.append(row)
        if job.path.name != "first":
            return []
        k = round(row.figures["kept_fraction"] * row.figures["dim"])
        return [Job(make_config(BASE, {"method": "top-k", "compression": {"k": k}}), tmp_path / "second")]

    run_jobs([first], follow, workers, Silent(), unexpected)
    leader, follower = (row.figures for row in rows)
    assert follower["kept_fraction"] == pytest.approx(leader["kept_fraction"], abs=0.5 / leader["dim"])


def test_a_process_that_dies_is_named(tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text(DEADLY)
    config = make_config({"task": f"{tmp_path}/deadly.py:build", "iterations": 10, "clients": 2})
    jobs = [Job(config, tmp_path / "one"), Job(make_config(BASE), tmp_path / "two")]
    with pytest.raises(gf.InputError, match="died; perhaps the memory was full"):
        run_jobs(jobs, lambda job, summary: [], 2, Silent(), unexpected)


KILLED = """
import os, signal
from pathlib import Path
from gammafl.experiments import pool

class Job:
    path = Path("job")
    def run(self, progress):
        print(os.getpid(), flush=True)
        os.kill(os.getppid(), signal.SIGKILL)
        signal.pause()

if __name__ == "__main__":
    pool.run_jobs([Job()], lambda job, summary: [], 2, None, None)
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux, to wait for a process that is no child")
def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    (tmp_path / "killed.py").write_text(KILLED)
    with subprocess.Popen([sys.executable, tmp_path / "killed.py"], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        try:
            handle = os.pidfd_open(worker)
        except ProcessLookupError:
            return  # it has ended already
        ended, _, _ = select.select([handle], [], [], 60)
        os.close(handle)
    assert ended


def test_a_users_mistake_in_a_worker_reaches_the_parent(tmp_path: Path) -> None:
    wrong = make_config(BASE, {"partition": {"kind": "labels", "classes": 11}})
    with pytest.raises(gf.InputError, match="10 classes"):
        run_jobs([Job(wrong, tmp_path / "run")], lambda job, summary: [], 2, Silent(), unexpected)

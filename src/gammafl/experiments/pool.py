"""Runs independent jobs in parallel processes, each with one thread, and shows the progress of all in one place."""

import gc
import multiprocessing as mp
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from gammafl.core import threads
from gammafl.core.errors import DivergedError, ProcessDiedError
from gammafl.experiments.grid import StudyJob
from gammafl.experiments.rows import Row
from gammafl.runs.progress import Progress, Status

Submit = Callable[[StudyJob], Future[Row]]
Show = Callable[[], None]
"""Forwards what the jobs have reported since the last call."""


def run_jobs(
    jobs: Sequence[StudyJob],
    follow: Callable[[Any, Row], Sequence[StudyJob]],
    workers: int,
    progress: Progress,
    give_up: Callable[[Any, DivergedError], None],
) -> None:
    """Runs all of `jobs`, and the jobs that follow from them, `workers` at a time.

    follow    takes a finished job and its row, and returns the jobs that can start now; they run before those left
    give_up   takes a job whose training diverged, and the error; the other jobs go on
    """
    left, running = list(jobs), dict[Future[Row], StudyJob]()
    with _processes(workers, progress) if workers > 1 else _this_process(progress) as (submit, show):
        while left or running:
            while left and len(running) < workers:
                job = left.pop(0)
                running[submit(job)] = job
            finished, _ = wait(running, timeout=0.1, return_when=FIRST_COMPLETED)
            show()
            for future in finished:
                job = running.pop(future)
                try:
                    left[:0] = follow(job, future.result())
                except DivergedError as error:
                    give_up(job, error)
                except BrokenProcessPool:
                    raise ProcessDiedError(f"the process of {job.path} died; perhaps the memory was full") from None


@contextmanager
def _this_process(progress: Progress) -> Iterator[tuple[Submit, Show]]:
    """Runs jobs in this process, with one thread, so that a job takes one core."""

    def submit(job: StudyJob) -> Future[Row]:
        future = Future[Row]()
        try:
            future.set_result(_run(job, progress))
        except DivergedError as error:
            future.set_exception(error)
        return future

    before = threads.count()
    threads.set_count(1)
    try:
        yield submit, lambda: None
    finally:
        threads.set_count(before)


@contextmanager
def _processes(workers: int, progress: Progress) -> Iterator[tuple[Submit, Show]]:
    context = mp.get_context("spawn")  # a fork would copy the state of torch's and numba's threads without the threads
    events: mp.Queue[str | Status] = context.Queue()
    pool = ProcessPoolExecutor(workers, context, _start_worker, (events,))
    said: set[str] = set()
    try:
        yield lambda job: pool.submit(_work, job), lambda: _show(events, progress, said)
        _show(events, progress, said)
    except BaseException:
        for process in list(pool._processes.values()):  # a stopped run can be resumed from its checkpoint
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _show(events: "mp.Queue[str | Status]", progress: Progress, said: set[str]) -> None:
    """Forwards what the workers reported. A text that several workers report is shown once."""
    while True:
        try:
            event = events.get_nowait()
        except queue.Empty:
            return
        if isinstance(event, Status):
            progress.update(event)
        elif event not in said:
            said.add(event)
            progress.say(event)


class _ToParent:
    """The progress of a worker: it puts each report into a queue that the parent reads."""

    def __init__(self, events: "mp.Queue[str | Status]") -> None:
        self.events = events

    def say(self, text: str) -> None:
        self.events.put(text)

    def update(self, status: Status) -> None:
        if status.evaluated or status.round == status.rounds:
            self.events.put(status)


_progress: Progress


def _start_worker(events: "mp.Queue[str | Status]") -> None:
    global _progress
    _progress = _ToParent(events)
    threads.set_count(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Ends this worker when the parent ends. After `kill -9` of the parent, the worker would wait for jobs for ever."""
    parent = mp.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)  # the run can be resumed from its checkpoint


def _work(job: StudyJob) -> Row:
    return _run(job, _progress)


def _run(job: StudyJob, progress: Progress) -> Row:
    """Runs a job and then collects garbage: reference cycles would keep the run's data in memory."""
    try:
        return job.run(progress)
    finally:
        gc.collect()

"""Independent runs side by side: one process a run, one thread each, with the progress of all in one place."""

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
"""Passes on what jobs have reported since it was last called."""


def run_jobs(
    jobs: Sequence[StudyJob],
    follow: Callable[[Any, Row], Sequence[StudyJob]],
    workers: int,
    progress: Progress,
    give_up: Callable[[Any, DivergedError], None],
) -> None:
    """All of `jobs`, and what follows from them, `workers` at a time.

    follow    what a finished job, with its row, makes possible; it is run before the others that are left
    give_up   hears of a job whose training diverged; the others go on
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
                    raise ProcessDiedError(f"the process of {job.path} died, perhaps for want of memory") from None


@contextmanager
def _this_process(progress: Progress) -> Iterator[tuple[Submit, Show]]:
    """With one thread, so that one job takes one core."""

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
    context = mp.get_context("spawn")  # a fork would copy torch's and numba's threads half
    events: mp.Queue[str | Status] = context.Queue()
    pool = ProcessPoolExecutor(workers, context, _start_worker, (events,))
    said: set[str] = set()
    try:
        yield lambda job: pool.submit(_work, job), lambda: _show(events, progress, said)
        _show(events, progress, said)
    except BaseException:
        for process in list(pool._processes.values()):  # the runs resume; nothing is lost by stopping them
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _show(events: "mp.Queue[str | Status]", progress: Progress, said: set[str]) -> None:
    """Passes on what the workers reported; what several of them say, once."""
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
    """A worker's progress: put into a queue that the parent reads."""

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
    """A parent that is killed says nothing, and its workers would wait for the next job for ever."""
    parent = mp.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)  # the run resumes


def _work(job: StudyJob) -> Row:
    return _run(job, _progress)


def _run(job: StudyJob, progress: Progress) -> Row:
    """A run that is over holds its data until somebody collects it: cycles."""
    try:
        return job.run(progress)
    finally:
        gc.collect()

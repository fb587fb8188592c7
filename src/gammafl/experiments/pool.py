"""Independent runs side by side: one process a run, one thread each, with the progress of all in one place."""

import multiprocessing as mp
import os
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from gammafl.core import threads
from gammafl.core.errors import DivergedError, ProcessDiedError
from gammafl.runs.progress import Progress, Status

Outcome = Any
"""What a finished job returns: of a study's job its row."""


class Runnable(Protocol):
    """A job of any kind: what a process can be given."""

    @property
    def path(self) -> Path: ...

    def run(self, progress: Progress) -> Outcome: ...


AnyJob = TypeVar("AnyJob", bound=Runnable)
Follow = Callable[[AnyJob, Outcome], list[AnyJob]]
"""What a finished job makes possible."""
GiveUp = Callable[[AnyJob, DivergedError], None]
"""Hears of a job whose training diverged; the others go on."""


def raise_error(job: Runnable, error: DivergedError) -> None:
    """Nothing goes on without that job."""
    raise error


def run_jobs(
    jobs: list[AnyJob],
    follow: Follow[AnyJob],
    workers: int,
    progress: Progress,
    give_up: GiveUp[AnyJob] = raise_error,
) -> list[Outcome]:
    """All of `jobs`, and what follows from them, `workers` at a time."""
    if workers == 1:
        return _one_by_one(jobs, follow, progress, give_up)
    done: list[Outcome] = []
    with _pool(workers) as (pool, events):
        said: set[str] = set()
        waiting: dict[Future[Outcome], AnyJob] = {pool.submit(_work, job): job for job in jobs}
        while waiting:
            finished, _ = wait(waiting, timeout=0.1, return_when=FIRST_COMPLETED)
            _show(events, progress, said)
            for future in finished:
                job = waiting.pop(future)
                try:
                    done.append(_result(future, job))
                except DivergedError as error:
                    give_up(job, error)
                    continue
                waiting |= {pool.submit(_work, further): further for further in follow(job, done[-1])}
        _show(events, progress, said)
    return done


def _result(future: Future[Outcome], job: Runnable) -> Outcome:
    try:
        return future.result()
    except BrokenProcessPool:
        raise ProcessDiedError(f"the process of {job.path} died, perhaps for want of memory") from None


def _one_by_one(
    jobs: list[AnyJob], follow: Follow[AnyJob], progress: Progress, give_up: GiveUp[AnyJob]
) -> list[Outcome]:
    """In this process, with one thread, so that one job takes one core."""
    done: list[Outcome] = []
    left = list(jobs)
    before = threads.count()
    threads.set_count(1)
    try:
        while left:
            job = left.pop(0)
            try:
                done.append(job.run(progress))
            except DivergedError as error:
                give_up(job, error)
                continue
            left += follow(job, done[-1])
    finally:
        threads.set_count(before)
    return done


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


def _work(job: Runnable) -> Outcome:
    return job.run(_progress)


@contextmanager
def _pool(workers: int) -> Iterator[tuple[ProcessPoolExecutor, "mp.Queue[str | Status]"]]:
    context = mp.get_context("spawn")  # a fork would copy torch's and numba's threads half
    events: mp.Queue[str | Status] = context.Queue()
    pool = ProcessPoolExecutor(workers, context, _start_worker, (events,))
    try:
        yield pool, events
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

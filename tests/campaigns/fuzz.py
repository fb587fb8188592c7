"""The decoder against millions of inputs: an update that encodes to the same bytes again, or `WireError`.

    python -m tests.campaigns.fuzz [--inputs N] [--seed S] [--jobs J]

Every input is a function of the seed, of its batch's number and of its place there. A failing one is printed in hex,
a hanging one as well: the parent sees from shared memory at which input a worker stands.
"""

import argparse
import multiprocessing
import os
import queue
import resource
import statistics
import time
import tracemalloc
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import gammafl as gf
from gammafl.core import varints
from gammafl.core.wire import MARK, POSITIONS, START, VALUES, Head, read_head
from tests.campaigns import mutations
from tests.campaigns.common import Ticker, say, verdict

HANGS_AFTER_SECONDS = 60.0
SLOW_SECONDS = 0.1
"""An input that takes longer each of twenty times is a failure."""

MEMORY_EVERY = 500
"""Of so many inputs one is decoded under tracemalloc."""

MEMORY_TIMES, MEMORY_FIXED = 128, 16_384
"""docs/wire-format.md's bound, and what an exception with its traceback takes whatever the input."""

BOMB_MICROSECONDS = 200
RESIDENT_GROWTH = 64 << 20


@dataclass
class Findings:
    """What a worker saw."""

    accepted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    slowest_seconds: float = 0.0
    slowest: str = ""
    memory_samples: int = 0
    memory_times: float = 0.0
    """The most memory that a decode took, in multiples of its input; of inputs of 1 KB or more."""
    resident_growth: int = 0


def problem_with(payload: bytes) -> str | None:
    """What is wrong with how the decoder takes `payload`; None, or "" for an input that was refused in order."""
    try:
        update = gf.decode(payload)
    except gf.WireError:
        return ""
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    new, indices = payload[0] == MARK, update.indices
    head = read_head(payload) if new else Head(0, 0, update.dim, len(update), 0, 0)
    dim, count = head.dim, head.entries + head.whole
    if (update.dim, len(update)) != (dim, count) or len(indices) != count:
        return f"{len(update)} entries of {update.dim} where the header says {count} of {dim}"
    if count and not (indices[-1] < dim and (indices[1:] > indices[:-1]).all()):
        return "indices out of order"
    if not np.isfinite(update.values).all():
        return "values that are not finite"
    if not new:
        return None if gf.decode(gf.encode(update)) == update else "it is another update in version 2"
    if gf.encode(update, POSITIONS[head.positions], VALUES[head.values]) != payload:
        return "it encodes to other bytes"
    return None


def memory_problem(payload: bytes, findings: Findings) -> str | None:
    problem_with(payload)  # what compiling takes on a fresh machine is not the decoder's
    tracemalloc.start()
    problem_with(payload)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    findings.memory_samples += 1
    if len(payload) >= 1000:
        findings.memory_times = max(findings.memory_times, peak / len(payload))
    return f"{peak} bytes taken" if peak > MEMORY_TIMES * len(payload) + MEMORY_FIXED else None


def slow_problem(payload: bytes, seconds: float, findings: Findings) -> str | None:
    """An input that took longer than all before it: the best of twenty more tries is its own time."""
    for _ in range(20):
        began = time.perf_counter()
        problem_with(payload)
        seconds = min(seconds, time.perf_counter() - began)
    if seconds > findings.slowest_seconds:
        findings.slowest_seconds, findings.slowest = seconds, payload.hex()
    return f"takes {seconds:.3f} s" if seconds > SLOW_SECONDS else None


def try_batch(seed: int, number: int, size: int, findings: Findings, place: Any, at: int) -> str | None:
    """The first failure of a batch; `place[at + 1]` is where it stands."""
    name, payloads = mutations.batch(seed, number, size)
    accepted, clock = 0, time.perf_counter
    for i, payload in enumerate(payloads):
        place[at + 1] = i
        began = clock()
        problem = problem_with(payload)
        seconds = clock() - began
        if problem is None:
            accepted += 1
        if seconds > findings.slowest_seconds:
            problem = problem or slow_problem(payload, seconds, findings)
        if i % MEMORY_EVERY == number % MEMORY_EVERY:
            problem = problem or memory_problem(payload, findings)
        if problem or (problem == "" and name == "valid"):
            return f"seed {seed} batch {number} ({name}) input {i}: {problem or 'refused'}: {payload.hex()}"
    findings.accepted[name] += accepted
    findings.refused[name] += len(payloads) - accepted
    return None


def work(worker: int, jobs: int, seed: int, inputs: int, place: Any, results: Any) -> None:
    """Every `jobs`-th batch; `place` holds (batch, input, inputs done) of each worker."""
    findings, at, failure = Findings(), 3 * worker, None
    before = 0
    for number in range(worker, -(-inputs // mutations.BATCH), jobs):
        size = min(mutations.BATCH, inputs - number * mutations.BATCH)
        place[at] = number
        failure = try_batch(seed, number, size, findings, place, at)
        place[at + 2] += size
        before = before or _peak_resident()
        if failure:
            break
    findings.resident_growth = _peak_resident() - before
    results.put((failure, findings))


def _peak_resident() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def run_workers(seed: int, inputs: int, jobs: int) -> tuple[list[str], list[Findings]]:
    """Failures and findings. A worker that stands at one input for a minute hangs; it is killed and the input shown."""
    context = multiprocessing.get_context("fork")
    place, results = context.RawArray("q", 3 * jobs), context.Queue()
    workers = [
        context.Process(target=work, args=(i, jobs, seed, inputs, place, results), daemon=True) for i in range(jobs)
    ]
    for worker in workers:
        worker.start()
    ticker = Ticker("fuzz")
    failures: list[str] = []
    found: list[Findings] = []
    last, since = list(place), time.monotonic()
    while len(found) < jobs:
        try:
            failure, findings = results.get(timeout=1.0)
            found.append(findings)
            failures += [failure] if failure else []
        except queue.Empty:
            if list(place) != last:
                last, since = list(place), time.monotonic()
            elif time.monotonic() - since > HANGS_AFTER_SECONDS or not any(w.is_alive() for w in workers):
                return [*failures, *(_where(seed, place, i) for i, w in enumerate(workers) if _stop(w))], found
        ticker.tick(f"{sum(place[2::3]):,} of {inputs:,} inputs")
    return failures, found


def _stop(worker: Any) -> bool:
    """Whether the worker hung or died on its own; it is gone then."""
    died = worker.exitcode not in (None, 0)
    if worker.is_alive():
        worker.kill()
        died = True
    return died


def _where(seed: int, place: Any, worker: int) -> str:
    number, i = place[3 * worker], place[3 * worker + 1]
    name, payloads = mutations.batch(seed, number)
    return f"seed {seed} batch {number} ({name}) input {i}: hangs or kills the process: {payloads[i].hex()}"


def demanding(seed: int) -> Findings:
    """Larger messages, whole and damaged, all under tracemalloc: up to 40,000 entries."""
    findings, rng = Findings(), np.random.default_rng([seed, 1 << 40])
    for dim, count in ((40_000, 40_000), (40_001, 40_000), (300_000, 40_000), (40_000, 20_000), (2**32 - 1, 30_000)):
        for update in mutations.updates_of_every_kind(rng, dim, count):
            payload = gf.encode(update)
            damaged = bytearray(payload)
            damaged[rng.integers(START.size, len(payload))] ^= 1
            for message in (payload, *mutations.sealed([bytes(damaged), payload[: len(payload) // 2], payload + b"x"])):
                if problem := memory_problem(message, findings):
                    findings.slowest = problem
    return findings


def bombs() -> dict[str, bytes]:
    """Forty bytes that claim a billion entries or more, in every pair of codings."""
    most = varints.written(2**32 - 1)
    heads = [
        (f"{p}, {v}", bytes([MARK, i | j << 4, 0, 0, 0, 0]) + most + (most if p == "all" else varints.written(10**9)))
        for i, p in enumerate(POSITIONS)
        for j, v in enumerate(VALUES)
    ]
    return {name: mutations.sealed([head + bytes(24)])[0] for name, head in heads}


def bomb_microseconds(payload: bytes, tries: int = 1000) -> float:
    """The median time of a refusal."""
    times = []
    for _ in range(tries):
        began = time.perf_counter()
        try:
            gf.decode(payload)
        except gf.WireError:
            times.append(time.perf_counter() - began)
    return 1e6 * statistics.median(times) if len(times) == tries else float("inf")


def main() -> None:
    parser = argparse.ArgumentParser(description="fuzz the decoder")
    parser.add_argument("--inputs", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    ticker = Ticker("fuzz")
    say(f"fuzz: seed {options.seed}, {len(mutations.corpus())} valid messages to start from")
    mutations.compile_all()
    slowest_bomb, name = max((bomb_microseconds(payload), name) for name, payload in bombs().items())
    large = demanding(options.seed)
    failures, found = run_workers(options.seed, options.inputs, options.jobs)
    for family in mutations.FAMILIES:
        accepted, refused = (sum(getattr(f, kind)[family] for f in found) for kind in ("accepted", "refused"))
        say(f"  {family:30}{accepted:>12,} accepted{refused:>12,} refused")
    slow = max(found, key=lambda f: f.slowest_seconds, default=Findings())
    samples = large.memory_samples + sum(f.memory_samples for f in found)
    times = max(f.memory_times for f in [large, *found])
    growth = max((f.resident_growth for f in found), default=0)
    say(f"  slowest input {1e6 * slow.slowest_seconds:.0f} µs, {len(slow.slowest) // 2} bytes: {slow.slowest[:400]}")
    say(f"  memory: at most {times:.0f} times the input in {samples:,} samples; resident +{growth / 2**20:.1f} MiB")
    say(f"  bombs of 40 bytes: slowest median refusal {slowest_bomb:.1f} µs ({name})")
    failures += [large.slowest] if large.slowest else []
    failures += [f"resident memory grew by {growth} bytes"] if growth > RESIDENT_GROWTH else []
    failures += [f"a bomb takes {slowest_bomb:.0f} µs"] if slowest_bomb > BOMB_MICROSECONDS else []
    for failure in failures:
        say(f"  {failure}")
    accepted = sum(f.accepted.total() for f in found)
    tried = accepted + sum(f.refused.total() for f in found)
    text = f"{tried:,} inputs of seed {options.seed} ({accepted:,} accepted), {len(failures)} failures"
    most = f"memory at most {times:.0f} times the input; 40-byte bombs refused in {slowest_bomb:.1f} µs or less"
    verdict("fuzz", not failures, f"{text}; {most}; {ticker.elapsed():.0f} s")


if __name__ == "__main__":
    main()

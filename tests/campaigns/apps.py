"""The apps of tests/apps with the two lines against the same apps without: progress of the training, and bytes sent.

    python -m tests.campaigns.apps [--apps a,b] [--keeps K,K] [--seeds N] [--rounds R,R] [--out FILE] [--jobs J]

Progress is (L_0 − L)/(L_0 − L_FedAvg), with L the loss on clients' data after as many rounds of the same seed: 1 is
what the app reaches when it sends everything. Bytes are of whole replies to train messages, with metrics and all that
Flower and gammafl write around them. Nothing in these apps depends on how many rounds are planned, so that a run of 40
rounds also tells of 6. Results are appended to the file as they come, and a campaign goes on where it was stopped.

It passes if every app that converges in 40 rounds makes 0.9 of the progress in 40 rounds with 50 times fewer bytes.
"""

import argparse
import json
import logging
import multiprocessing
import os
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tests.campaigns.common import Ticker, say, verdict

SCORED = (6, 12, 20, 40, 100, 200)
"""The rounds after which a run is scored, as far as it goes."""

SHOWN = (6, 40, 200)
METHOD = "gamma-fedht-q:keep={}"
PROGRESS, FACTOR = 0.9, 50.0
"""What is wanted after 40 rounds: so much of the progress, with so many times fewer bytes."""


class Job(NamedTuple):
    """One run; without `keep` the app as it is without us."""

    app: str
    keep: float | None
    seed: int
    rounds: int


def run_one(job: Job) -> dict[str, Any]:
    """A line of the results."""
    import torch

    from tests.apps.catalogue import APPS
    from tests.apps.runs import play

    torch.set_num_threads(1)
    logging.getLogger("flwr").setLevel(logging.ERROR)
    scored = [number for number in SCORED if number <= job.rounds]
    method = None if job.keep is None else METHOD.format(job.keep)
    played = play(APPS[job.app], method, job.rounds, job.seed, score_at={0, *scored})
    scores: dict[str, dict[str, float]] = {}
    for number in (0, *scored):
        metrics = played.result.evaluate_metrics_serverapp[number]
        values = {name: float(str(metrics[name])) for name in ("loss", "accuracy", "train_loss")}
        scores[str(number)] = values | {"bytes": played.bytes_until(number)}
    return job._asdict() | {"scores": scores}


def read(path: Path) -> list[dict[str, Any]]:
    """The lines that are there; one that was cut off is run again."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def is_done(job: Job, lines: Sequence[dict[str, Any]]) -> bool:
    """Whether the run is there, or a longer one, which begins alike."""
    return any((line["app"], line["keep"], line["seed"]) == job[:3] and line["rounds"] >= job.rounds for line in lines)


# --- the table ----------------------------------------------------------------------------------------------


class Cell(NamedTuple):
    """An app with a `keep` after some rounds, against itself without us: a value a seed."""

    progress: list[float]
    factor: list[float]
    accuracy: list[float]
    full_accuracy: list[float]


class Table:
    """What the results say of each app, keep and number of rounds."""

    def __init__(self, lines: Sequence[dict[str, Any]]) -> None:
        self.scores: dict[tuple[str, float | None, int, int], dict[str, float]] = {}
        for line in lines:
            for number, score in line["scores"].items():
                self.scores[line["app"], line["keep"], line["seed"], int(number)] = score

    def cell(self, app: str, keep: float, number: int) -> Cell:
        cell = Cell([], [], [], [])
        for seed in sorted({key[2] for key in self.scores}):
            first, ours, full = (self.scores.get((app, *rest)) for rest in self._keys(keep, seed, number))
            if first is None or ours is None or full is None:
                continue
            cell.progress.append(
                (first["train_loss"] - ours["train_loss"]) / (first["train_loss"] - full["train_loss"])
            )
            cell.factor.append(full["bytes"] / ours["bytes"])
            cell.accuracy.append(ours["accuracy"])
            cell.full_accuracy.append(full["accuracy"])
        return cell

    @staticmethod
    def _keys(keep: float, seed: int, number: int) -> list[tuple[float | None, int, int]]:
        return [(None, seed, 0), (keep, seed, number), (None, seed, number)]


def shown(values: Sequence[float], digits: int = 2) -> str:
    """Mean and half the interval; "–" where nothing was run."""
    from gammafl.experiments.intervals import interval

    if not values:
        return "–"
    found = interval(values)
    half = f" ± {found.high - found.mean:.{digits}f}" if found.count > 1 else ""
    return f"{found.mean:.{digits}f}{half}"


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")


def markdown(table: Table, apps: Sequence[str], keeps: Sequence[float]) -> list[str]:
    from tests.apps.catalogue import APPS

    rounds = " | ".join(f"progress, {number} rounds" for number in SHOWN)
    lines = [f"| app | trains with | keep | bytes | {rounds} | accuracy, 40 rounds |"]
    lines.append("|---|---|---|---|" + "---|" * (len(SHOWN) + 1))
    for app in apps:
        for keep in keeps:
            cells = {number: table.cell(app, keep, number) for number in SHOWN}
            factors = next((cell.factor for cell in (cells[40], *cells.values()) if cell.factor), [])
            parts = [app, APPS[app].trains] if keep == keeps[0] else ["", ""]
            parts += [f"{keep:g}", f"{mean(factors):.0f}×" if factors else "–"]
            parts += [shown(cells[number].progress) for number in SHOWN]
            ours, full = (100 * mean(values) for values in (cells[40].accuracy, cells[40].full_accuracy))
            parts.append(f"{ours:.1f}% of {full:.1f}%" if cells[40].accuracy else "–")
            lines.append(f"| {' | '.join(parts)} |")
    return lines


def needed(table: Table, apps: Sequence[str], keeps: Sequence[float]) -> list[str]:
    """For each number of rounds the smallest `keep` with 0.9 of the progress, app by app."""
    lines = ["| app | " + " | ".join(f"{number} rounds" for number in SCORED) + " |", "|---|" + "---|" * len(SCORED)]
    for app in apps:
        cells = []
        for number in SCORED:
            found = {keep: table.cell(app, keep, number).progress for keep in sorted(keeps)}
            tried = {keep: mean(values) for keep, values in found.items() if values}
            enough = [f"{keep:g}" for keep, progress in tried.items() if progress >= PROGRESS]
            cells.append(enough[0] if enough else f"> {max(tried):g}" if tried else "–")
        lines.append(f"| {app} | {' | '.join(cells)} |")
    return lines


def by_times(table: Table, apps: Sequence[str], keeps: Sequence[float]) -> list[str]:
    """Progress by keep · rounds: how often a client can send each entry in the run."""
    found: dict[str, dict[str, float]] = {}
    for number in sorted(SCORED):
        for keep in keeps:
            cells = {app: mean(table.cell(app, keep, number).progress) for app in apps}
            if known := {app: progress for app, progress in cells.items() if progress == progress}:
                found[f"{keep * number:.2f} | {number} | {keep:g}"] = known
    lines = ["| keep · rounds | rounds | keep | median | lowest | 0.9 and more |", "|---|---|---|---|---|---|"]
    for key, known in sorted(found.items(), key=lambda item: float(item[0].split()[0])):
        lowest = min(known, key=lambda app: known[app])
        good = sum(progress >= PROGRESS for progress in known.values())
        middle = median(known.values())
        lines.append(f"| {key} | {middle:.2f} | {known[lowest]:.2f} ({lowest}) | {good} of {len(known)} |")
    return lines


def converges(table: Table, app: str, number: int) -> bool:
    """Whether the app without us has after so many rounds made most of the progress that it makes in 200."""
    shares = []
    for seed in sorted({key[2] for key in table.scores}):
        losses = [table.scores.get((app, None, seed, at), {}).get("train_loss") for at in (0, number, 200)]
        if losses[0] is not None and losses[1] is not None and losses[2] is not None:
            shares.append((losses[0] - losses[1]) / (losses[0] - losses[2]))
    return not shares or mean(shares) >= PROGRESS


def reached(table: Table, app: str, keeps: Sequence[float], number: int) -> bool:
    """Whether some `keep` has the wanted progress with the wanted saving after so many rounds."""
    cells = [table.cell(app, keep, number) for keep in keeps]
    return any(mean(cell.progress) >= PROGRESS and mean(cell.factor) >= FACTOR for cell in cells)


def main() -> None:
    parser = argparse.ArgumentParser(description="progress and bytes of the apps of tests/apps")
    parser.add_argument("--apps", default="")
    parser.add_argument("--keeps", default="0.01,0.03,0.1")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", default="40,200", help="the lengths of the runs, in this order")
    parser.add_argument("--out", type=Path, default=Path("build/campaign-apps.jsonl"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--show", action="store_true", help="only the tables of what is there")
    options = parser.parse_args()
    from tests.apps.catalogue import APPS

    apps = options.apps.split(",") if options.apps else list(APPS)
    keeps, rounds = [float(k) for k in options.keeps.split(",")], [int(r) for r in options.rounds.split(",")]
    variants = [None, *keeps]
    wanted = [Job(a, k, s, r) for r in rounds for s in range(options.seeds) for a in apps for k in variants]
    lines, ticker = read(options.out), Ticker("apps")
    missing = [] if options.show else [job for job in wanted if not is_done(job, lines)]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool, options.out.open("a") as file:
        for line in pool.imap_unordered(run_one, missing):
            lines.append(line)
            file.write(json.dumps(line) + "\n")
            file.flush()
            ticker.tick(f"{len(lines)} of {len(wanted)} runs")
    table = Table(lines)
    say("\n".join(markdown(table, apps, keeps)) + "\n")
    say("\n".join(needed(table, apps, keeps)) + "\n")
    say("\n".join(by_times(table, apps, keeps)) + "\n")
    number = min(40, max(rounds))
    slow = [app for app in apps if not converges(table, app, number)]
    short = [app for app in apps if not reached(table, app, keeps, number)]
    text = f"{len(lines)} runs; after {number} rounds less than {PROGRESS} of the progress, or less than {FACTOR:.0f}×"
    text += f" fewer bytes: {', '.join(short) or 'none'}; not converged by then: {', '.join(slow) or 'none'}"
    verdict("apps", set(short) <= set(slow), f"{text}, {ticker.elapsed():.0f} s")


if __name__ == "__main__":
    main()

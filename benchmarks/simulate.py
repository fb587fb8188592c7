"""Rounds per second of gammafl, of a plain torch loop, of pfl-research and of Flower's simulation, for equal work.

The contenders take turns. Each is a process that stays alive and runs some rounds when it is asked; `peers/work.py`
says what a round is, and has the protocol. The peers need their own environment (`make peers`).
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import limit, peers
from benchmarks.measure import verdict
from benchmarks.peers.work import Work
from gammafl.core.errors import InputError, require
from gammafl.report.tables import TextTable
from gammafl.runs.progress import Progress

PEERS = Path(peers.__path__[0])
CLONE = PEERS.parents[1]
"""The directory in which Python finds `benchmarks`."""
OURS, PLAIN, PFL, FLOWER = "gammafl", "plain", "pfl", "flower"
WANTED = {
    "logistic": {PLAIN: 8.0, PFL: 8.0, FLOWER: 60.0},
    "cnn": {PLAIN: 3.0, PFL: 3.0},
    "vgg11s": {PLAIN: 1.6, PFL: 1.6},
    "lenet": {PLAIN: 1.0, PFL: 1.0},
    "resnet": {PLAIN: 1.0, PFL: 1.0},
}
SECONDS = 2.0
"""About the length of a turn."""


def works(models: Sequence[str], clients: Sequence[int], threads: int) -> list[Work]:
    """The paper's settings, with each number of clients."""
    batch = {"logistic": 50, "cnn": 8, "vgg11s": 8, "lenet": 8, "resnet": 8}
    unknown = [model for model in models if model not in batch]
    if unknown:
        raise InputError(f"there is no model {unknown[0]!r}; there are {', '.join(batch)}")
    require(min(clients) >= 2, f"--clients needs at least 2, because half of them take part; got {min(clients)}")
    return [Work(model, n, n // 2, 5, batch[model], threads) for model in models for n in clients]


class Contender:
    """A process that runs rounds when asked to."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.name: str = self._answer()["name"]
        self.kept = 1.0
        """The share of an update that the contender sends, as its last answer says."""

    def rounds_per_second(self, rounds: int) -> float:
        """Asks for this number of rounds and waits until they are done."""
        assert self._process.stdin is not None
        print(rounds, file=self._process.stdin, flush=True)
        answer = self._answer()
        self.kept = answer["kept"]
        return answer["rounds"] / answer["seconds"]

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise InputError(f"{self._process.args!r} ended with exit code {code}; run it alone to see its error")
        return json.loads(line)


@contextmanager
def started(command: Sequence[str], work: Work) -> Iterator[Contender]:
    """Starts a contender. It ends when the block ends, because its input ends there."""
    pipe, arguments = subprocess.PIPE, [*command, json.dumps(asdict(work))]
    silent = subprocess.DEVNULL
    with subprocess.Popen(arguments, cwd=CLONE, stdin=pipe, stdout=pipe, stderr=silent, text=True) as process:
        try:
            yield Contender(process)
        except BaseException:
            process.kill()
            raise


def commands(environment: Path) -> dict[str, list[str]]:
    """Contender → the command that starts it. Peers are there only if `environment` exists."""
    own = {OURS: [sys.executable, "-m", "benchmarks.ours"], PLAIN: [sys.executable, str(PEERS / "plain.py")]}
    python = environment.absolute() / "bin" / "python"
    if not python.exists():
        return own
    return own | {PFL: [str(python), str(PEERS / "pfl_research.py")], FLOWER: [str(python), str(PEERS / "flower.py")]}


def table(work: Work, environment: Path, turns: int, progress: Progress) -> TextTable:
    """Measures all contenders on one piece of work."""
    with ExitStack() as stack:
        contenders = {}
        for key, command in commands(environment).items():
            contenders[key] = stack.enter_context(started(command, work))
        rounds = {key: max(5, round(SECONDS * one.rounds_per_second(5))) for key, one in contenders.items()}
        speeds: dict[str, list[float]] = {key: [] for key in contenders}
        for turn in range(turns):
            progress.say(f"{work.model}, {work.clients} clients: turn {turn + 1} of {turns}")
            for key, contender in contenders.items():
                speeds[key].append(contender.rounds_per_second(rounds[key]))
    return _table(work, contenders, speeds)


def _table(work: Work, contenders: dict[str, Contender], speeds: dict[str, list[float]]) -> TextTable:
    rows = []
    for key, values in speeds.items():
        ratio = median(speeds[OURS]) / median(values)
        wanted = WANTED[work.model].get(key)
        rows.append(
            [
                contenders[key].name,
                f"{median(values):.3g}",
                f"{min(values):.3g} – {max(values):.3g}",
                f"{100 * contenders[key].kept:.3g}%",
                "" if key == OURS else f"{ratio:.3g}×" if wanted is None else verdict(ratio, wanted),
            ]
        )
    missing = [key for key in (PFL, FLOWER) if key not in speeds]
    return TextTable(
        f"{work.model}: {work.participants} of {work.clients} clients a round, E = {work.local_steps},"
        f" batch {work.batch_size}, {work.threads} threads",
        ["", "rounds/s", "least – most", "sent", "gammafl is faster by"],
        rows,
        f"median of {len(speeds[OURS])} turns; {limit.text(work)}"
        + (f"; not installed: {', '.join(missing)} (make peers)" if missing else ""),
    )

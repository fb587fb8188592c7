"""`make flower-demo`: the app of this directory on a real SuperLink with three SuperNodes, with gammafl and without.

python demo.py [DIRECTORY] [ROUNDS]      # for keys, logs and states; build/flower-demo and 6 by default
"""

import json
import shutil
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deployment import Deployment, DeploymentError
from rich.console import Console
from rich.table import Table

APP = Path(__file__).parent
NODES, ROUNDS, ROUND_SECONDS = 3, 6, 90
VICTIM, KILLED_IN_ROUND = 1, 3
RUN_SECONDS = 600
"""The time limit of a run of `ROUNDS` rounds; a run of more rounds has proportionally more."""

console = Console(highlight=False)
began = time.monotonic()


def say(text: str) -> None:
    console.print(f"[dim]{time.monotonic() - began:4.0f} s[/dim]  {text}", soft_wrap=True)


@dataclass
class Run:
    """One run of the app, whose progress is shown."""

    deployment: Deployment
    name: str
    compress: bool
    kill: bool = False
    rounds: int = ROUNDS
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of the app, in addition to the demo's own."""

    shown: int = 0
    sockets: tuple[int, int] = (0, 0)
    seconds: float = 0.0
    accuracies: list[float] = field(default_factory=list)
    sent: list[dict[str, Any]] = field(default_factory=list)

    @property
    def out(self) -> Path:
        return self.deployment.directory / self.name

    def execute(self) -> None:
        self.out.mkdir()
        config = {
            "compress": self.compress, "out": str(self.out), "num-server-rounds": self.rounds,
            "round-seconds": ROUND_SECONDS, "min-nodes": NODES - 1,
        } | self.settings  # fmt: skip
        self.deployment.traffic()
        start = time.monotonic()
        self.deployment.run(APP, config, RUN_SECONDS * max(1, self.rounds / ROUNDS), self.follow)
        self.follow()
        self.seconds = time.monotonic() - start
        self.sockets = self.deployment.traffic()

    def follow(self) -> None:
        """Shows new rounds, and kills a SuperNode in round `KILLED_IN_ROUND`."""
        lines = read_lines(self.out / "rounds.jsonl")
        for line in lines[self.shown :]:
            if "accuracy" not in line:
                self.sent.append(line)
            elif line["round"]:
                self.accuracies.append(line["accuracy"])
                now = self.sent[-1]
                say(
                    f"{self.name}: round {line['round']} of {self.rounds}: accuracy {line['accuracy']:.1%},"
                    f" {now['uploads']} uploads of {size(now['uplink_bytes'])} in all"
                )
        self.shown = len(lines)
        victim = self.deployment.nodes[VICTIM]
        if self.kill and victim.log.read_text(errors="replace").count("Receiving: train") == KILLED_IN_ROUND:
            self.kill = False
            victim.kill()
            say(f"[bold]SuperNode {VICTIM} killed with SIGKILL in round {KILLED_IN_ROUND}[/bold]; it is restarted, and")
            say("the SuperLink lets it in again when its last heartbeat is a minute old")

    def total(self, key: str) -> int:
        return sum(line[key] for line in self.sent)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The complete lines of a file that another process writes."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def size(count: float) -> str:
    return f"{count / 1e6:.2f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


def table(plain: Run, small: Run, restarts: int) -> Table:
    made = Table(title=f"{NODES} SuperNodes, TLS and authentication, Fashion-MNIST, a model of 207,178 parameters")
    for column in ("", "FedAvg", "with gammafl", "less"):
        made.add_column(column, justify="right" if column else "left")

    def compare(name: str, before: float, after: float) -> None:
        made.add_row(name, size(before), size(after), f"{before / after:.1f}×" if after else "")

    made.add_row("rounds", str(len(plain.accuracies)), str(len(small.accuracies)))
    made.add_row("SuperNodes killed and restarted", "0", str(restarts))
    made.add_row("uploads", str(plain.total("uploads")), str(small.total("uploads")))
    made.add_row("accuracy", f"{plain.accuracies[-1]:.1%}", f"{small.accuracies[-1]:.1%}")
    made.add_row("seconds", f"{plain.seconds:.0f}", f"{small.seconds:.0f}")
    each = [run.total("uplink_bytes") / max(run.total("uploads"), 1) for run in (plain, small)]
    compare("payload of an upload", *each)
    compare("payload up, all", plain.total("uplink_bytes"), small.total("uplink_bytes"))
    compare("payload down, all", plain.total("downlink_bytes"), small.total("downlink_bytes"))
    compare("on the sockets, up", plain.sockets[0], small.sockets[0])
    compare("on the sockets, down", plain.sockets[1], small.sockets[1])
    return made


def check_ledger(small: Run) -> None:
    """Compares two measurements of the same bytes: what the strategy accepted, and what the grid passed on."""
    accepted = sum(line["uplink_bytes"] for line in read_lines(small.out / "ledger.jsonl"))
    arrived = small.total("uplink_bytes")
    if accepted != arrived:
        raise DeploymentError(f"gammafl's ledger has {accepted} bytes accepted, but {arrived} arrived")
    say(f"gammafl's ledger: {accepted} bytes accepted, as many as the sum of the messages that arrived")


def main(directory: Path, rounds: int) -> None:
    if (directory / "superlink.log").exists():
        shutil.rmtree(directory)
    say(f"starting a SuperLink and {NODES} SuperNodes on loopback; logs in {directory}")
    with Deployment(directory, NODES, {"OMP_NUM_THREADS": "1"}) as deployment:
        say(f"all up: TLS, {NODES} registered keys")
        small = Run(deployment, "compressed", compress=True, kill=True, rounds=rounds)
        small.execute()
        check_ledger(small)
        restarts = sum(node.starts > 1 for node in deployment.nodes)
        deployment.wait_for_nodes()
        plain = Run(deployment, "uncompressed", compress=False, rounds=rounds)
        plain.execute()
    say("SuperLink and SuperNodes are gone")
    console.print(table(plain, small, restarts))


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/flower-demo"), int((sys.argv[2:] or [ROUNDS])[0]))
    except DeploymentError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("interrupted; nothing is left running")

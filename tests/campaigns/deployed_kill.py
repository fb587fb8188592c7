"""A real SuperLink, real SuperNodes: the ServerApp is killed at random instants, and `flwr run` goes on from its disk.

    python -m tests.campaigns.deployed_kill [--kills N] [--rounds R] [--seed S]

Every fourth kill takes a SuperNode with it, every eighth the SuperLink and all SuperNodes. In the end the model is that
of a training that was left alone, to the bit.
"""

import argparse
import importlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.campaigns.common import Ticker, say, verdict

ROOT = Path(__file__).parents[2]
APP = ROOT / "tests" / "flower" / "deployment_app"
sys.path.insert(0, str(ROOT / "examples" / "flower_app"))
deployments: Any = importlib.import_module("deployment")

RUN_SECONDS = 900.0
NODES = 2
LOOK_SECONDS = 5.0
MOST_APPS = 3
"""Where a ServerApp takes more than 30 s to start, Flower starts another, and each makes the others slower: on a busy
machine there were once sixty. The newest is the one that the SuperLink still talks to."""


class Trainings:
    """Trainings of the app in one deployment."""

    def __init__(self, deployment: Any, rounds: int, seed: int) -> None:
        self.deployment, self.rounds, self.rng = deployment, rounds, random.Random(seed)
        self.kills = {"ServerApp": 0, "SuperNode": 0, "SuperLink": 0}
        self.begun = 0

    def alone(self) -> tuple[bytes, float]:
        """The model of a training that is left alone, and its seconds."""
        folder, began = self._folder("alone"), time.monotonic()
        self.deployment.run(APP, self._settings(folder), RUN_SECONDS)
        return (folder / "model.npy").read_bytes(), time.monotonic() - began

    def killed(self, seconds: float, most: int) -> bytes:
        """The model of one that is killed at most so many times, each within `seconds` of its start."""
        self.begun += 1
        folder, kills = self._folder(f"killed-{self.begun}"), 0
        while not (folder / "model.npy").exists():
            moment = self.rng.uniform(0.1, 0.5) * seconds if kills < most else None
            was_killed = self._attempt(folder, moment)
            if not was_killed and not (folder / "model.npy").exists():
                raise self.deployment.error("flwr-run", "ended without a model")
            kills += was_killed
        return (folder / "model.npy").read_bytes()

    def _folder(self, name: str) -> Path:
        path: Path = self.deployment.directory / name
        path.mkdir()
        return path

    def _settings(self, folder: Path) -> dict[str, Any]:
        return {
            "directory": str(folder),
            "checkpoint": str(folder / "server"),
            "repeatable": True,
            "dies": False,
            "num-server-rounds": self.rounds,
            "round-seconds": 120,
        }

    def _attempt(self, folder: Path, moment: float | None) -> bool:
        """`flwr run`, killed after so many seconds; whether it was."""
        here = self.deployment
        here.wait_for_nodes()
        settings = folder / "settings.toml"
        settings.write_text("".join(f"{k} = {json.dumps(v)}\n" for k, v in self._settings(folder).items()))
        process = here.start(
            "flwr-run", "flwr", "run", str(APP), deployments.CONNECTION, "--stream", "--run-config", str(settings)
        )
        began, looked, killed = time.monotonic(), time.monotonic(), False
        while process.poll() is None and time.monotonic() < began + RUN_SECONDS:
            here.restart_dead()
            if moment is not None and time.monotonic() > began + moment and (app := self._server_app()):
                killed, moment = True, None
                self._kill(app)
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # it would go on to stream the log of a run that is gone
            if time.monotonic() > looked + LOOK_SECONDS:
                looked = time.monotonic()
                end_all_but_the_newest(self._server_app())
            time.sleep(0.05)
        return killed

    def _kill(self, app: list[int]) -> None:
        here, number = self.deployment, self.kills["ServerApp"]
        for pid in app:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.kills["ServerApp"] += 1
        if number % 4 == 3:
            here.nodes[self.rng.randrange(NODES)].kill()
            self.kills["SuperNode"] += 1
        if number % 8 == 5:
            os.killpg(here.link.pid, signal.SIGKILL)
            here.link.wait()
            for node in here.nodes:  # one that meets a relay without a SuperLink behind it waits for ever
                node.kill()
            here.start_link()
            self.kills["SuperNode"] += len(here.nodes)
            self.kills["SuperLink"] += 1

    def _server_app(self) -> list[int]:
        """The processes that are the ServerApp, the newest last."""
        found = []
        for pid in deployments.marked(self.deployment.mark):
            with suppress(OSError):
                if b"flwr-serverapp" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return sorted(found, key=started)


def started(pid: int) -> int:
    """When the process began, in ticks since the machine did; 0 if it is gone."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return 0


def end_all_but_the_newest(apps: Sequence[int], most: int = MOST_APPS) -> None:
    """Where there are too many at once."""
    for pid in apps[:-1] if len(apps) > most else ():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description="kill ServerApps of a real deployment, and let them go on")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    ticker, failures, compared = Ticker("deployed_kill", 20.0), 0, 0
    with (
        tempfile.TemporaryDirectory() as folder,
        deployments.Deployment(Path(folder) / "deployment", nodes=NODES) as deployment,
    ):
        trainings = Trainings(deployment, options.rounds, options.seed)
        expected, seconds = trainings.alone()
        say(f"deployed_kill: a training that is left alone takes {seconds:.0f} s")
        while (left := options.kills - trainings.kills["ServerApp"]) > 0 and not failures:
            model = trainings.killed(seconds, min(left, trainings.rng.randint(3, 8)))
            compared, failures = compared + 1, failures + (model != expected)
            ticker.tick(f"{trainings.kills['ServerApp']} of {options.kills} kills, {compared} trainings ended")
    killed = ", ".join(f"{count} of the {name}" for name, count in trainings.kills.items())
    text = f"kills: {killed}; {compared} trainings compared, {failures} that differ, {ticker.elapsed():.0f} s"
    verdict("deployed_kill", not failures, text)


if __name__ == "__main__":
    main()

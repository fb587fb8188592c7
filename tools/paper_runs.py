"""`make paper`: runs what is missing of the paper's evaluation, most informative first, and keeps it in results/.

python -m tools.paper_runs [--jobs 2] [--minutes 170] [--only WORD] [--list]

Each command is one of `gammafl study`. Its runs go into runs/paper; what is finished goes into results/ every ten
minutes: rows, tables and charts. Runs that have a row in results/ are not run again. So the program can be stopped at
any time, and goes on where it was, also on another machine if results/ was committed. Results of other settings, such
as of a shorter length, are replaced when the command has finished, and not before.
"""

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from gammafl.config.layers import parse_settings
from gammafl.config.presets import PRESET

ROOT = Path(__file__).parents[1]
RESULTS, OUT = ROOT / "results", ROOT / "runs" / "paper"
KEPT = {".jsonl", ".md", ".png", ".svg"}
EVERY_SECONDS = 600
"""The time between two looks at what is finished."""

COMMANDS = """
setting --task cnn-cifar10
table3 --task cnn-cifar10 --preset dagc-code --only classes=3 --seeds 0,1,2,3,4
table4 --task cnn-cifar10 --preset dagc-code --only classes=3 --seeds 0,1,2,3,4
table3 --task cnn-cifar10 --preset dagc-code --only classes=2 --seeds 0,1,2
table4 --task cnn-cifar10 --preset dagc-code --only classes=2 --seeds 0,1,2
table3 --task cnn-cifar10 --preset dagc-code --only classes=5 --seeds 0,1,2
table4 --task cnn-cifar10 --preset dagc-code --only classes=5 --seeds 0,1,2
fig3 --task vgg11s-pacs --only method=fedavg,gamma-fedht,ht,top-k --seeds 0
fig3 --task gpt2-wikitext2 --set sequence=64 --only method=fedavg,gamma-fedht,ht,top-k --seeds 0
beyond --task cnn-cifar10
beyond --task logistic-fmnist --seeds 300,301,302,303,304,305,306,307,308,309
fig1 --task cnn-cifar10
fig4 --task logistic-fmnist --only clients=100 --only keep=0.1%
fig4 --task cnn-cifar10 --only clients=10 --only keep=0.1% --only classes=2 --only stepsize=inverse --seeds 0
fig2 --task cnn-cifar10 --seeds 0,1
""".strip().splitlines()


def place(command: str) -> str:
    """The name of the command's directory of results.

    >>> place("table3 --task cnn-cifar10 --preset dagc-code --only classes=3")
    'table3-cnn-cifar10-dagc-code'
    """
    words = shlex.split(command)
    named = [words[words.index(option) + 1] for option in ("--task", "--preset") if option in words]
    return "-".join([words[0], *named])


def arguments(command: str, jobs: int) -> list[str]:
    """The whole command, with the rows of other results that have runs of the same task."""
    words = shlex.split(command)
    task = words[words.index("--task") + 1]
    others = sorted(path.parent for path in RESULTS.glob(f"*{task}*/rows.jsonl") if path.parent.name != place(command))
    rows = [word for path in others for word in ("--rows", str(path))]
    program = [sys.executable, "-m", "gammafl", "study"]
    return [*program, *words, "--out", str(OUT), "--jobs", str(jobs), *rows]


def copy(source: Path, target: Path) -> None:
    """Copies rows, tables and charts, if there are any."""
    for path in source.glob("*"):
        if path.suffix in KEPT:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)


def settings_of(directory: Path) -> dict[str, Any] | None:
    """The changed settings of the rows in a directory; None if there are no rows."""
    path = directory / "rows.jsonl"
    return json.loads(path.read_text("utf-8").partition("\n")[0]).get("settings", {}) if path.exists() else None


def changes(command: str) -> dict[str, Any]:
    """What the command changes of all runs, as its rows record it."""
    named = list(pairwise(shlex.split(command)))
    presets = [word for option, word in named if option == "--preset"]
    return {
        **({PRESET: presets[0]} if presets else {}),
        **parse_settings([w for option, w in named if option == "--set"]),
    }


def run(command: str, jobs: int, until: float) -> int | None:
    """Runs the command until it ends, or until this time. Returns its exit code, or None if the time was over."""
    whole, here, there = arguments(command, jobs), OUT / place(command), RESULTS / place(command)
    comparable = settings_of(there) in (None, changes(command))
    if comparable:
        copy(there, here)
    with subprocess.Popen(whole, cwd=ROOT) as process:
        while process.poll() is None:
            try:
                process.wait(max(0, min(EVERY_SECONDS, until - time.monotonic())))
            except subprocess.TimeoutExpired:
                if over := time.monotonic() >= until:
                    process.terminate()  # not an interrupt, which a shell lets background processes ignore
                    process.wait()
                subprocess.run([*whole, "--collect"], cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
                if comparable:
                    copy(here, there)
                if over:
                    return None
    copy(here, there)
    return process.returncode


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many; by default at the end")
    parser.add_argument("--only", default="", metavar="WORD", help="only the commands that have this word")
    parser.add_argument("--list", action="store_true", help="show the commands and run nothing")
    options = parser.parse_args(given)
    chosen = [command for command in COMMANDS if options.only in command]
    if not chosen:
        parser.error(f"no command has {options.only!r}; see --list")
    until, failed = time.monotonic() + 60 * options.minutes, False
    for command in chosen:
        print(f"gammafl study {command}", flush=True)
        if options.list:
            continue
        code = run(command, options.jobs, until)
        if code is None:
            print(f"paper: {options.minutes:g} minutes are over; what is finished is in results/")
            return
        failed |= code != 0
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

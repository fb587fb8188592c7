"""How long a start takes: until the package is imported, the help is shown, or the first round of a run has ended.

Each is a new process on a warm cache, compared with a process that imports numpy and torch.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.measure import show_seconds, verdict
from gammafl.report.tables import TextTable

IMPORTS = "python -c 'import numpy, torch'"
GAMMAFL = "from gammafl.cli.main import main; main()"
WANTED = {"python -c 'import gammafl'": 0.15, "gammafl --help": 0.15, "gammafl run to the end of its first round": 1.5}


def table(repeats: int) -> TextTable:
    """The median seconds of each process. The processes take turns."""
    imported, helped, ran = WANTED
    works: dict[str, Callable[[], float]] = {
        IMPORTS: partial(_whole, "import numpy, torch"),
        imported: partial(_whole, "import gammafl"),
        helped: partial(_whole, GAMMAFL, "--help"),
        ran: _first_round,
    }
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(repeats + 1):
        for name, work in works.items():
            taken = work()
            if turn:  # the first turn only fills the caches
                seconds[name].append(taken)
    unit = median(seconds[IMPORTS])
    rows = [
        [name, show_seconds(median(values)), verdict(median(values) / unit, WANTED[name], at_most=True)]
        if name in WANTED
        else [name, show_seconds(median(values)), ""]
        for name, values in seconds.items()
    ]
    return TextTable("start, on a warm cache", ["", "median", f"of {IMPORTS}"], rows)


def _whole(code: str, *arguments: str) -> float:
    """The seconds that a whole process takes."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def _first_round() -> float:
    """The seconds until a run has printed the result of its only round."""
    with tempfile.TemporaryDirectory() as place:
        run = ["run", "logistic-mini", "--json", "--set", "iterations=5", "--out", str(Path(place, "run"))]
        began = time.perf_counter()
        with subprocess.Popen([sys.executable, "-c", GAMMAFL, *run], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline(), "the run printed nothing"
            return time.perf_counter() - began

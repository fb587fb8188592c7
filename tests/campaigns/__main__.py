"""All campaigns that need no download, in less than an hour on two cores.

    python -m tests.campaigns [--only fuzz,kill] [--tiny]

Each runs in a process of its own, one after the other; one that mostly waits runs beside them. What a campaign says
last goes into the table of docs/reliability.md, which nobody writes by hand; with --tiny, as CI runs them, the page
stays as it is.
"""

import argparse
import datetime
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.campaigns.common import Ticker, say

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- make campaigns writes this table -->", "<!-- up to here -->"
HEAD = ["| command | promise | last run |", "|---|---|---|"]


@dataclass(frozen=True)
class Campaign:
    """One of them: what it promises, its arguments, and those of the tiny size."""

    promise: str
    arguments: str
    tiny: str
    waits: bool = False
    """Whether it mostly waits, for Flower's processes, and leaves the cores to others."""

    def command(self, name: str, is_tiny: bool = False) -> list[str]:
        return [sys.executable, "-m", f"tests.campaigns.{name}", *(self.tiny if is_tiny else self.arguments).split()]


CAMPAIGNS = {
    "fuzz": Campaign(
        "any bytes are an update that encodes to the same bytes again, or a `WireError`; no hang, bounded memory",
        "--inputs 6000000",
        "--inputs 20000 --jobs 1",
    ),
    "kill": Campaign(
        "a run, or a ServerApp with its clients, that is killed at any instant and goes on ends with the same bytes",
        "--kills 200",
        "--kills 12 --iterations 40",
    ),
    "deployed_kill": Campaign(
        "a ServerApp of a real SuperLink, killed alone or with a SuperNode or the SuperLink, ends with the same model",
        "--kills 50 --rounds 6",
        "--kills 1 --rounds 2",
        waits=True,
    ),
    "soak": Campaign(
        "memory and open files stay flat, the ledger can be read while it is written",
        "--rounds 40000",
        "--rounds 1500",
    ),
    "faults": Campaign(
        "30% faults of all kinds: nothing lost, accuracy within a point",
        "",
        "--task logistic-mini --seeds 1 --iterations 200 --tolerance 40 --jobs 1",
    ),
}


def last_line(name: str, command: Sequence[str]) -> str:
    """What the campaign says last. Its output is shown meanwhile, with its name before each line."""
    last = ""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            say(line.rstrip() if line.startswith(f"{name}: ") else f"{name}: {line.rstrip()}")
            last = line.strip() or last
    said = last.removeprefix(f"{name}: ")
    if not said.startswith("FAILED: " if process.returncode else "PASSED: "):
        return f"FAILED: ended with code {process.returncode} and without a verdict"
    return said


def run_all(names: Sequence[str], is_tiny: bool) -> dict[str, str]:
    """What each campaign says last: those that wait run beside the others, which come one after the other."""
    lanes = [[name for name in names if CAMPAIGNS[name].waits is waits] for waits in (True, False)]

    def run_lane(lane: list[str]) -> dict[str, str]:
        return {name: last_line(name, CAMPAIGNS[name].command(name, is_tiny)) for name in lane}

    with ThreadPoolExecutor(len(lanes)) as pool:
        said = {name: text for lane in pool.map(run_lane, lanes) for name, text in lane.items()}
    return {name: said[name] for name in names}


def row(name: str, said: str, day: str) -> str:
    """A line of the table.

    >>> row("soak", "PASSED: 40 rounds", "2026-11-18").split(" | ")[2]
    'PASSED: 40 rounds (2026-11-18) |'
    """
    campaign = CAMPAIGNS[name]
    command = " ".join(["python -m", f"tests.campaigns.{name}", campaign.arguments]).strip()
    return f"| `{command}` | {campaign.promise} | {said.replace('|', '/')} ({day}) |"


def with_rows(page: str, rows: dict[str, str]) -> str:
    """`page` with these rows in its table; rows of other campaigns stay as they are."""
    before, rest = page.split(BEGIN)
    table, after = rest.split(END)
    there = {name: line for name in CAMPAIGNS for line in table.splitlines() if f"tests.campaigns.{name}" in line}
    lines = [*HEAD, *((there | rows)[name] for name in CAMPAIGNS if name in there | rows)]
    return "\n".join([before + BEGIN, *lines, END]) + after


def main() -> None:
    parser = argparse.ArgumentParser(description="run the campaigns, and write their table")
    parser.add_argument("--only", default=",".join(CAMPAIGNS), help="names with commas between them")
    parser.add_argument("--tiny", action="store_true", help="the size that CI runs; writes no table")
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := [name for name in names if name not in CAMPAIGNS]:
        parser.error(f"no campaign {', '.join(unknown)}; there are {', '.join(CAMPAIGNS)}")
    ticker = Ticker("campaigns")
    said = run_all(names, options.tiny)
    if not options.tiny:
        day = datetime.date.today().isoformat()
        PAGE.write_text(with_rows(PAGE.read_text(), {name: row(name, text, day) for name, text in said.items()}))
        say(f"campaigns: the table is in {PAGE.relative_to(ROOT)}")
    failed = [name for name, text in said.items() if not text.startswith("PASSED")]
    passed = f"{len(said) - len(failed)} of {len(said)} passed in {ticker.elapsed() / 60:.0f} minutes"
    say(f"campaigns: {passed}{': not ' if failed else ''}{', '.join(failed)}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

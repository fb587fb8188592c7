"""What the campaigns share: a line every few seconds, a verdict at the end, and what a process holds."""

import os
import sys
import time
from pathlib import Path


class Ticker:
    """Prints at most one line every `seconds`, so that a long campaign shows that it goes on."""

    def __init__(self, name: str, seconds: float = 5.0) -> None:
        self.name = name
        self.seconds = seconds
        self.began = self.shown = time.monotonic()

    def tick(self, text: str) -> None:
        now = time.monotonic()
        if now - self.shown >= self.seconds:
            self.shown = now
            say(f"{self.name}: {text}, {now - self.began:.0f} s")

    def elapsed(self) -> float:
        return time.monotonic() - self.began


def say(text: str) -> None:
    print(text, flush=True)


def verdict(name: str, passed: bool, text: str) -> None:
    """The last line of a campaign, and its exit code: 0, or 1 on a failure."""
    say(f"{name}: {'PASSED' if passed else 'FAILED'}: {text}")
    sys.exit(0 if passed else 1)


def resident_bytes() -> int:
    """Memory that this process has in RAM now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def own_bytes() -> int:
    """Of these, the memory that is its own: without pages of files, which the kernel takes and gives as it likes."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))


def open_files() -> int:
    """Handles that this process has open, without the one that counts them."""
    return len(os.listdir("/proc/self/fd")) - 1

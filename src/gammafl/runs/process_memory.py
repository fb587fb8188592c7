"""How much memory a run takes."""

import resource
from contextlib import suppress
from pathlib import Path


def forget_peak() -> None:
    """Starts the measurement anew, where the system can (Linux)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """The largest resident memory since `forget_peak`; since the process began where that can't be told."""
    return _status("VmHWM") or 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def resident_bytes() -> int:
    """The memory of this process alone, without files that are mapped; 0 where that can't be told."""
    return _status("RssAnon")


def _status(key: str) -> int:
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{key}:"):
                return 1024 * int(line.split()[1])
    return 0

"""The memory that a run takes."""

import sys
from contextlib import suppress
from pathlib import Path


def forget_peak() -> None:
    """Starts the measurement of the peak again, on Linux only."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_bytes(b"5")


def peak_bytes() -> int:
    """The peak of the resident memory: on Linux since `forget_peak`, on macOS since the process began, elsewhere 0."""
    return _status("VmHWM") or _since_start()


def resident_bytes() -> int:
    """The resident memory of this process, without mapped files; 0 if the system does not tell it."""
    return _status("RssAnon")


def _since_start() -> int:
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return (1 if sys.platform == "darwin" else 1024) * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _status(key: str) -> int:
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text("utf-8").splitlines():
            if line.startswith(f"{key}:"):
                return 1024 * int(line.split()[1])
    return 0

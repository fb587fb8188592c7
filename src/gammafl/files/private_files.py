"""Files and directories that only their owner can read, from the instant they are there and whatever the umask."""

import os
from io import BufferedWriter
from pathlib import Path

DIRECTORY, FILE = 0o700, 0o600
PUBLIC_FILE = 0o666
"""What the umask leaves of it: for files that are made to be given away."""

OTHERS = 0o077


def make_directory(path: Path) -> None:
    """`path`, and what is missing above it. One that is there already becomes private; what is above it stays."""
    for missing in reversed([path, *path.parents]):
        if not missing.exists():
            missing.mkdir(DIRECTORY, exist_ok=True)
    if path.stat().st_mode & OTHERS:
        path.chmod(DIRECTORY)


def new_file(path: Path, mode: int = FILE) -> BufferedWriter:
    """`path` for writing, empty and new: what was there under this name is gone, with its mode and its readers."""
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    return os.fdopen(handle, "wb")

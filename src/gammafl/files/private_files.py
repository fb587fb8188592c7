"""Files and directories that only their owner can read, from their creation on and with any umask.

On Windows the modes have no effect: there a file has the permissions of its directory.
"""

import os
from io import BufferedWriter
from pathlib import Path

DIRECTORY, FILE = 0o700, 0o600
"""The permissions of private directories and files."""

PUBLIC_FILE = 0o666
"""The permissions of files that are made for others to use. The umask restricts them further."""

OTHERS = 0o077
CHUNK_BYTES = 1 << 20


def make_directory(path: Path) -> None:
    """Creates `path` and its missing parents as private directories.

    If `path` exists, it becomes private. Parents that exist stay as they are.
    """
    for missing in reversed([path, *path.parents]):
        if not missing.exists():
            missing.mkdir(DIRECTORY, exist_ok=True)
    if path.stat().st_mode & OTHERS:
        path.chmod(DIRECTORY)


def new_file(path: Path, mode: int = FILE) -> BufferedWriter:
    """Opens `path` for writing as a new file. A file of this name is removed first, so nobody has the new one open."""
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    return os.fdopen(handle, "wb")


def reserve(stream: BufferedWriter, size: int) -> None:
    """Makes an empty file `size` zero bytes long and reserves its place on the disk; an `OSError` if that is full."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(stream.fileno(), 0, size)
        return
    zeros = bytes(min(size, CHUNK_BYTES))  # macOS and Windows
    while size > 0:
        size -= stream.write(zeros[:size])

"""Locks between processes. The system releases a lock when its process ends, also after kill -9."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from gammafl.core.errors import InputError
from gammafl.files import private_files

POLL_SECONDS = 0.2
"""The time between two attempts to take a lock that another process holds."""


def take(
    path: Path, held_elsewhere: str, seconds: float = 0.0, before_waiting: Callable[[], None] | None = None
) -> AbstractContextManager[Any]:
    """Locks the file `path` for this process. The returned context releases the lock when it ends.

    The file is private to its owner, and stays when the lock is released. A symbolic link is not followed. An `OSError`
    says that the file can't be made, or that the file system has no locks.

    Arguments:
        path: the lock file, in a directory that exists.
        held_elsewhere: the text of the `InputError` if another process still holds the lock after `seconds`.
        seconds: how long to wait for the other process.
        before_waiting: called once if there is another process to wait for.
    """
    # Without flock, filelock would fall back to a file that exists as long as the lock is held: kill -9 leaves it.
    lock = FileLock(path, mode=private_files.FILE, poll_interval=POLL_SECONDS, fallback_to_soft=False)
    try:
        return lock.acquire(blocking=False)
    except Timeout:
        if before_waiting is not None:
            before_waiting()
    try:
        return lock.acquire(timeout=max(0.0, seconds))
    except Timeout:
        raise InputError(held_elsewhere) from None

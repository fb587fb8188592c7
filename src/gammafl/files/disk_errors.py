"""Errors of the disk as messages that say what to do."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gammafl.core.errors import InputError

NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)
NO_SUCH_PLACE = (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOENT, errno.ENAMETOOLONG, errno.ELOOP, errno.ENXIO)


@contextmanager
def storing(
    path: Path | str, then: str = "go on with --resume", elsewhere: str = "choose another --out"
) -> Iterator[None]:
    """Turns an `OSError` of a write into an `InputError` that names the file and the fix.

    Arguments:
        path: the file or directory that is written.
        then: what the user does once the disk is in order.
        elsewhere: how the user chooses another place.
    """
    try:
        yield
    except OSError as error:
        advice = f"make room, then {then}"
        if error.errno in NOT_ALLOWED:
            advice = f"make it writable, then {then}; or {elsewhere}"
        elif error.errno in NO_SUCH_PLACE:
            advice = elsewhere
        raise InputError(f"can't write {path} ({error.strerror or error}); {advice}") from None

"""The one way to write a file: beside the old one, flushed to disk, then renamed."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedWriter
from pathlib import Path
from typing import Any

from gammafl.core.errors import InputError
from gammafl.files import private_files
from gammafl.files.reading import is_there, require_regular


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None if there is no file. A damaged file is an `InputError`."""
    try:
        require_regular(path)
        return dict(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(f"{path} is damaged ({error}); remove it, and it will be written again") from None


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file of `content`, and the directories above it. After a crash, the file is the old or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as stream:
        stream.write(content)


@contextmanager
def replacing(
    path: Path, mode: int = private_files.PUBLIC_FILE, *, one_writer: bool = False, previous: Path | None = None
) -> Iterator[BufferedWriter]:
    """A stream for the new content of `path`. A crash or an error at any time leaves the old file or the whole new one.

    The stream writes to a file beside `path` that is renamed at the end.

    Arguments:
        path: the file to write.
        mode: the permissions of the new file, from its creation on.
        one_writer: no other process writes `path` at the same time. The file beside it then always has the same name,
            so that the next writer removes what a killed one left. Without it, the name contains the process id.
        previous: the name under which the old file is kept. By default the old file is removed.
    """
    part = path.with_name(f"{path.name}.part" if one_writer else f"{path.name}.{os.getpid()}.part")
    try:
        with private_files.new_file(part, mode) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if previous is not None and is_there(path):
            os.replace(path, previous)
        os.replace(part, path)
        sync_directory(path.parent)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def sync_directory(directory: Path) -> None:
    """Flushes the renames in `directory` to disk. Does nothing on Windows, which has no such call."""
    if os.name == "nt":
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""Small files that are written whole or not at all."""

import json
import os
from pathlib import Path
from typing import Any

from gammafl.core.errors import InputError


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a file that was written whole; None where there is no file."""
    try:
        return dict(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(f"{path} is damaged ({error}); remove it to have it made anew") from None


def write_atomically(path: Path, content: bytes) -> None:
    """Either the old file or the whole new one, whatever happens meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise

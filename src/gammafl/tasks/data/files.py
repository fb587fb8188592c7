"""Verified files on disk: cache directory, checksums, atomic writes, plain or compressed reading."""

import gzip
import hashlib
import json
import lzma
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gammafl.core.errors import InputError


@dataclass(frozen=True)
class DataFile:
    """A file of a data set as it is kept: by the sha256 of its uncompressed bytes, where one is known."""

    name: str
    bytes: int
    sha256: str | None = None


def cache_directory() -> Path:
    """$GAMMAFL_CACHE, or gammafl in the user's cache directory."""
    if own := os.environ.get("GAMMAFL_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gammafl"


def find(directory: Path, *names: str) -> Path | None:
    """The first of `names` in `directory` or below it, plain or compressed."""
    for name in names:
        for ending in ("", ".gz", ".xz"):
            if (path := directory / (name + ending)).exists():
                return path
            below = sorted(directory.glob(f"**/{name}{ending}"))
            if len(below) > 1:
                raise InputError(
                    f"{directory} has several {name}{ending}: {below[0]}, {below[1]}; name a folder of one"
                )
            if below:
                return below[0]
    return None


def read_plain(path: Path) -> bytes:
    """The uncompressed content of `path`."""
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            return gzip.decompress(content)
        return lzma.decompress(content) if path.suffix == ".xz" else content
    except (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(f"{path} is damaged ({error}); remove it and fetch it again") from None
    except OSError as error:
        raise InputError(f"can't read {path}: {error.strerror}") from None


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a file that was written whole; None where there is no file."""
    try:
        return dict(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(f"{path} is damaged ({error}); remove it to have it made anew") from None


def verify(content: bytes | memoryview, file: DataFile, origin: str) -> None:
    """Refuses content that is not `file`, and says where it came from."""
    found = hashlib.sha256(content).hexdigest()
    if file.sha256 not in (None, found):
        raise InputError(
            f"{origin} is damaged or not the official data: {file.name} has {len(content)} bytes with sha256"
            f" {found[:12]}…, expected {file.bytes} with {str(file.sha256)[:12]}…; remove it and fetch it again"
        )


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

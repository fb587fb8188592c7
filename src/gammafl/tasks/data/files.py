"""Verified files on disk: cache directory, checksums, atomic writes, plain or gzipped reading."""

import gzip
import hashlib
import os
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from gammafl.core.errors import InputError


@dataclass(frozen=True)
class DataFile:
    """A file of a data set, by the sha256 of its uncompressed bytes."""

    name: str
    sha256: str
    bytes: int


def cache_directory() -> Path:
    """$GAMMAFL_CACHE, or gammafl in the user's cache directory."""
    if own := os.environ.get("GAMMAFL_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gammafl"


def find(directory: Path, file: DataFile) -> Path | None:
    """`file` in `directory` or below it, plain or as .gz."""
    for name in (file.name, file.name + ".gz"):
        if (directory / name).is_file():
            return directory / name
        if below := sorted(directory.glob(f"**/{name}")):
            return below[0]
    return None


def read_verified(path: Path, file: DataFile) -> bytes:
    """The uncompressed content of `path`; a damaged file is an error that names it."""
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path} is damaged ({error}); remove it and fetch it again") from None
    except OSError as error:
        raise InputError(f"can't read {path}: {error.strerror}") from None
    verify(content, file, str(path))
    return content


def verify(content: bytes, file: DataFile, origin: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        raise InputError(
            f"{origin} is damaged or not the official file: {len(content)} bytes with sha256 {found[:12]}…,"
            f" expected {file.bytes} bytes with {file.sha256[:12]}…; remove it and fetch it again"
        )


def write_atomically(path: Path, content: bytes) -> None:
    """Either the old file or the whole new one, whatever happens meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise

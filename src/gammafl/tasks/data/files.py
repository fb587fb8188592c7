"""Files of data sets: the cache directory, checksums, and reading with a size limit, plain or compressed."""

import gzip
import hashlib
import io
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, cast

import platformdirs

from gammafl.core.errors import InputError

CHUNK = 1 << 20
"""Bytes per read."""
INEXACT = 4
"""A file whose size is known only roughly may be this many times larger."""
DAMAGE = (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile)
"""The exceptions of the decompression libraries for damaged files."""


@dataclass(frozen=True)
class DataFile:
    """A file of a data set, as the cache stores it. The sha256 is of the uncompressed bytes, or None if not known."""

    name: str
    bytes: int
    """The size of the uncompressed file: exact if `sha256` is known, otherwise approximate."""
    sha256: str | None = None

    @property
    def most_bytes(self) -> int:
        return self.bytes if self.sha256 else INEXACT * self.bytes


def cache_directory() -> Path:
    """$GAMMAFL_CACHE, or the directory `gammafl` in the user's cache."""
    if own := os.environ.get("GAMMAFL_CACHE"):
        return Path(own)
    return platformdirs.user_cache_path("gammafl", appauthor=False)


def find(directory: Path, *names: str) -> Path | None:
    """The first of `names` that is in `directory` or below it, plain or compressed; None if none is."""
    for name in names:
        for ending in ("", ".gz", ".xz"):
            if (path := directory / (name + ending)).exists():
                return path
            below = sorted(directory.glob(f"**/{name}{ending}"))
            if len(below) > 1:
                raise InputError(
                    f"{directory} has several {name}{ending}: {below[0]}, {below[1]}; give the folder of one of them"
                )
            if below:
                return below[0]
    return None


def open_plain(path: Path) -> BinaryIO:
    """The uncompressed content of `path` as a stream."""
    match path.suffix:
        case ".gz" | ".tgz":
            return cast(BinaryIO, gzip.open(path))
        case ".xz":
            return cast(BinaryIO, lzma.open(path))
        case _:
            return path.open("rb")


def read_plain(path: Path, most: int) -> bytes:
    """The uncompressed content of `path`. More than `most` bytes are an error."""
    with damage_named(path), open_plain(path) as stream:
        return read_within(stream, most, str(path))


def read_within(stream: IO[bytes], most: int, origin: str) -> bytes:
    """The rest of `stream`. It stops with an error after `most` bytes."""
    content = io.BytesIO()
    while chunk := stream.read(CHUNK):
        if content.tell() + len(chunk) > most:
            raise too_large(origin, most)
        content.write(chunk)
    return content.getvalue()


def too_large(origin: str, most: int) -> InputError:
    return InputError(
        f"{origin} is damaged or not the official data: it holds more than {most} bytes; remove it and fetch it again"
    )


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Turns a library's error about `path` into an `InputError` that names the file and the fix."""
    try:
        yield
    except DAMAGE as error:
        raise InputError(f"{path} is damaged ({error}); remove it and fetch it again") from None
    except OSError as error:
        raise InputError(f"can't read {path}: {error.strerror or error}") from None


def verify(content: bytes | memoryview, file: DataFile, origin: str, noted: str | None = None) -> None:
    """Refuses content that is not that of `file`. The error names `origin`.

    noted   the sha256 that the cache noted; it counts where no official one is known
    """
    found, expected = hashlib.sha256(content).hexdigest(), file.sha256 or noted
    if expected not in (None, found):
        raise InputError(
            f"{origin} is damaged or not the official data: {file.name} has {len(content)} bytes with sha256"
            f" {found[:12]}…, expected {file.bytes} with {str(expected)[:12]}…; remove it and fetch it again"
        )
    if len(content) > file.most_bytes:
        raise too_large(f"{file.name} of {origin}", file.most_bytes)


def require_sha256(path: Path, sha256: str) -> None:
    """Refuses a file that does not have this sha256, before anything in it is parsed."""
    with damage_named(path), path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != sha256:
        raise InputError(f"{path.name} has the sha256 {found[:12]}…, not {sha256[:12]}…; it was not opened")

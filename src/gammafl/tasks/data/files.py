"""Verified files on disk: cache directory, checksums, atomic writes, plain or compressed reading within bounds."""

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
"""Bytes that are read at a time."""
INEXACT = 4
"""Where a file's size is known roughly, this many times as much is refused."""
DAMAGE = (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile)
"""What the libraries that inflate files raise for damaged ones."""


@dataclass(frozen=True)
class DataFile:
    """A file of a data set as it is kept: by the sha256 of its uncompressed bytes, where one is known."""

    name: str
    bytes: int
    """Exactly, where a sha256 is known; else roughly."""
    sha256: str | None = None

    @property
    def most_bytes(self) -> int:
        return self.bytes if self.sha256 else INEXACT * self.bytes


def cache_directory() -> Path:
    """$GAMMAFL_CACHE, or gammafl in the user's cache directory."""
    if own := os.environ.get("GAMMAFL_CACHE"):
        return Path(own)
    return platformdirs.user_cache_path("gammafl", appauthor=False)


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
    """The uncompressed content of `path`, of at most `most` bytes."""
    with damage_named(path), open_plain(path) as stream:
        return read_within(stream, most, str(path))


def read_within(stream: IO[bytes], most: int, origin: str) -> bytes:
    """All that `stream` has; an error as soon as that is more than `most` bytes."""
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
    """An error of a library that can't read `path` becomes one that names the file and says what to do."""
    try:
        yield
    except DAMAGE as error:
        raise InputError(f"{path} is damaged ({error}); remove it and fetch it again") from None
    except OSError as error:
        raise InputError(f"can't read {path}: {error.strerror or error}") from None


def verify(content: bytes | memoryview, file: DataFile, origin: str) -> None:
    """Refuses content that is not `file`, and says where it came from."""
    found = hashlib.sha256(content).hexdigest()
    if file.sha256 not in (None, found):
        raise InputError(
            f"{origin} is damaged or not the official data: {file.name} has {len(content)} bytes with sha256"
            f" {found[:12]}…, expected {file.bytes} with {str(file.sha256)[:12]}…; remove it and fetch it again"
        )
    if len(content) > file.most_bytes:
        raise too_large(f"{file.name} of {origin}", file.most_bytes)


def require_sha256(path: Path, sha256: str) -> None:
    """Refuses a file before anything in it is looked at, unless it has the sha256 that is known for it."""
    with damage_named(path), path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != sha256:
        raise InputError(f"{path.name} has the sha256 {found[:12]}…, not {sha256[:12]}…: not opened")

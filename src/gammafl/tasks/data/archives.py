"""Reads the members of archives one by one, in memory and with a size limit.

A small archive can inflate to any size. So every caller gives a limit, and the reader stops there. Nothing is unpacked
to the disk, so a member's name is never used as a path.
"""

import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from gammafl.tasks.data.files import CHUNK, damage_named, open_plain, read_within, too_large

Wanted = Callable[[str], bool]
"""Whether to read the member with this name."""

INFLATABLE = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""The compression methods that Python inflates in pieces; for the others there is no size limit."""


def tar_members(path: Path, wanted: Wanted, most: int, in_all: int) -> Iterator[tuple[str, bytes]]:
    """Yields the names and contents of the wanted files in a tar archive (.tar, .tar.gz, .tgz, .tar.xz), in its order.

    A member may have at most `most` bytes, and the whole archive `in_all` bytes when inflated.
    """
    with damage_named(path), open_plain(path) as plain:
        stream = _Forward(plain, most, in_all, path)
        with tarfile.open(fileobj=stream, mode="r:") as archive:
            while (member := archive.next()) is not None:
                archive.members.clear()  # type: ignore[attr-defined]  # tarfile would keep every header
                if not member.isfile() or not wanted(member.name):
                    continue
                if member.size > most:
                    raise too_large(f"{member.name} in {path}", most)
                content = archive.extractfile(member)
                if content is None or member.issparse():
                    raise tarfile.TarError(f"{member.name} is not a regular file")
                yield member.name, read_within(content, most, f"{member.name} in {path}")


def zip_members(path: Path, wanted: Wanted, most: int) -> Iterator[tuple[str, bytes]]:
    """Yields the wanted files in a zip archive, in its order: name and content, each of at most `most` bytes."""
    with damage_named(path), zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.is_dir() or not wanted(member.filename):
                continue
            if member.compress_type not in INFLATABLE:
                raise zipfile.BadZipFile(f"{member.filename} uses a compression that no data set needs")
            if member.file_size > most:
                raise too_large(f"{member.filename} in {path}", most)
            with archive.open(member) as content:
                yield member.filename, read_within(content, most, f"{member.filename} in {path}")


def require_inflated_within(content: bytes, most: int, path: Path) -> None:
    """Refuses a zip archive (for example, an npz) that has more than `most` bytes when inflated."""
    with damage_named(path), zipfile.ZipFile(io.BytesIO(content)) as archive:
        if sum(member.file_size for member in archive.infolist()) > most:
            raise too_large(str(path), most)


class _Forward(io.BufferedIOBase):
    """The stream that tarfile reads: forwards only, at most about `most` bytes per call and `in_all` bytes in total.

    tarfile reads some headers in one call, with the length that the file claims. The limit per call stops false claims.
    """

    def __init__(self, stream: BinaryIO, most: int, in_all: int, path: Path) -> None:
        self._stream, self._most, self._in_all, self._path = stream, most, in_all, path
        self._position = 0

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= max(self._most, CHUNK):
            raise too_large(f"a header in {self._path}", self._most)
        if self._position + size > self._in_all:
            raise too_large(str(self._path), self._in_all)
        content = self._stream.read(size)
        self._position += len(content)
        return content

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET or offset < self._position:
            raise tarfile.TarError("its members overlap")
        while self._position < offset and self.read(min(CHUNK, offset - self._position)):
            pass
        return self._position

    def tell(self) -> int:
        return self._position

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

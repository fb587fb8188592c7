"""Sources of data sets that are not on this machine yet: official addresses.

A source downloads files into a folder. The data set's reader then reads and verifies them, as in a user's directory.
`packages` has another kind of source, which is only used if the user asks for it.
"""

import http.client
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from gammafl.core.errors import InputError
from gammafl.tasks.data.files import CHUNK

Say = Callable[[str], None]

SECONDS_TO_ANSWER = 15


class Source(Protocol):
    """A place to download files from."""

    @property
    def label(self) -> str: ...

    def fetch(self, folder: Path, say: Say) -> None:
        """Downloads the data set's files into `folder`, or raises an `InputError`."""
        ...


@dataclass(frozen=True)
class Web:
    """Files at `base`/name. None may be larger than `most_bytes`."""

    base: str
    names: tuple[str, ...]
    most_bytes: int

    @property
    def label(self) -> str:
        return self.base

    def fetch(self, folder: Path, say: Say) -> None:
        for name in self.names:
            address = f"{self.base}/{name}"
            try:
                self._download(address, folder / name)
            except urllib.error.HTTPError as error:
                error.close()  # it holds the connection
                raise InputError(f"{address} answers {error.code} {error.reason}") from None
            except (OSError, http.client.HTTPException) as error:
                raise InputError(_what_happened(address, error)) from None

    def _download(self, address: str, path: Path) -> None:
        with urllib.request.urlopen(address, timeout=SECONDS_TO_ANSWER) as answer, path.open("wb") as file:
            whole = answer.length or 0
            with download_shown(path.name, whole) as advance:
                while chunk := answer.read(CHUNK):
                    file.write(chunk)
                    advance(file.tell())
                    if file.tell() > self.most_bytes:
                        most = f"{self.most_bytes} bytes, the most that was expected"
                        raise InputError(f"{address} is larger than {most}")
            if whole and file.tell() != whole:
                raise InputError(f"{address} ended after {file.tell()} of {whole} bytes; try again")


@contextmanager
def download_shown(name: str, size: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error while a file is downloaded, if that is a terminal; 0: its size is not known.

    What it yields is called with the number of bytes that are there.
    """
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(compact=True),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    )
    with bar:
        task = bar.add_task(name, total=size or None)
        yield lambda done: bar.update(task, completed=done)


def _what_happened(address: str, error: Exception) -> str:
    """The reason why a server did not answer, in one line."""
    host = urlsplit(address).netloc
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    match cause:
        case socket.gaierror():
            return f"{host} can't be found: there is no network, or no such name"
        case ConnectionRefusedError():
            return f"{host} refuses the connection"
        case TimeoutError():
            return f"{host} did not answer within {SECONDS_TO_ANSWER} seconds"
        case http.client.IncompleteRead() | ConnectionResetError():
            return f"{address} ended too early; try again"
        case _:
            return f"{address}: {getattr(cause, 'strerror', None) or cause}"

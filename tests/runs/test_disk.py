"""A disk that is full or read-only: one line that names the fix, and the run goes on from its last checkpoint."""

import errno
import json
import os
import re
import resource
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gammafl.files import tensor_files
from gammafl.runs import checkpoint
from tests.conftest import repeatable
from tests.test_cli import gammafl

RUN = ["run", "logistic-mini", "--set", "iterations=15", "--set", "evaluation.every=1", "--set", "threads=1"]
RUN += ["--set", "checkpoint.every_seconds=0", "--set", "averaging.fraction=0.7"]
FILES = ("model.safetensors", "averaged-model.safetensors", "rounds.jsonl")
NOBODY = 65_534

Capture = pytest.CaptureFixture[str]


def run(path: Path, capsys: Capture) -> tuple[int, str]:
    """(exit code, standard error); goes on where there is something to go on with."""
    resume = ["--resume"] if (path / "config.toml").exists() else []
    code, _, err = gammafl(*RUN, "--out", str(path), *resume, capsys=capsys)
    return code, err


def result(path: Path) -> tuple[Any, ...]:
    """All of a finished run that does not depend on the machine, residuals included."""
    _, tensors = tensor_files.read(path / "checkpoint" / checkpoint.LAST)
    summary = repeatable(json.loads((path / "summary.json").read_text()))
    return *((path / name).read_bytes() for name in FILES), summary, {n: tensors[n].tobytes() for n in tensors}


def checkpoints(path: Path) -> dict[str, int]:
    """The rounds of the whole checkpoints that are there."""
    found = {}
    for name in (checkpoint.LAST, checkpoint.PREVIOUS):
        if (path / "checkpoint" / name).exists():
            found[name] = tensor_files.read(path / "checkpoint" / name)[0]["round"]  # raises if damaged
    return found


@pytest.fixture
def whole(tmp_path: Path, capsys: Capture) -> tuple[Any, ...]:
    """The result of a run that nothing happened to."""
    assert run(tmp_path / "whole", capsys) == (0, "")
    return result(tmp_path / "whole")


@contextmanager
def failing(module: Any, name: str, call: int) -> Iterator[list[int]]:
    """The `call`-th call of a function finds the disk full; the list counts the calls."""
    calls, function = [0], getattr(module, name)

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] == call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return function(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, wrapper)
        yield calls


@contextmanager
def files_up_to(limit: int) -> Iterator[None]:
    """No file can grow beyond `limit` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def check_one_line(code: int, err: str, where: object) -> None:
    assert code == 2, (where, err)
    assert err.startswith("error: "), (where, err)
    assert err.count("\n") == 1, (where, err)
    assert re.search(r"make room, then (go on with --resume|start the run again)$", err), (where, err)


@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_whatever_finds_the_disk_full_says_so_and_the_run_resumes(
    name: str, tmp_path: Path, whole: tuple[Any, ...], capsys: Capture
) -> None:
    """Every flush and every rename of a run in turn."""
    for call in range(1, 100):
        path = tmp_path / f"run-{call}"
        with failing(os, name, call) as calls:
            code, err = run(path, capsys)
        if calls[0] < call:
            break
        check_one_line(code, err, call)
        checkpoints(path)
        assert run(path, capsys) == (0, ""), call
        assert result(path) == whole, call
    assert call > 6


@pytest.mark.parametrize("limit", [0, 300, 900, 30_000, 60_000, 100_000])
def test_a_file_that_can_not_grow_says_so_and_the_run_resumes(
    limit: int, tmp_path: Path, whole: tuple[Any, ...], capsys: Capture
) -> None:
    """The configuration, the ledger, the first checkpoint, a later one."""
    path = tmp_path / "run"
    with files_up_to(limit):
        code, err = run(path, capsys)
    check_one_line(code, err, limit)
    checkpoints(path)
    assert run(path, capsys) == (0, "")
    assert result(path) == whole


def test_a_ledger_that_can_not_grow_says_so_and_the_run_resumes(tmp_path: Path, capsys: Capture) -> None:
    """Without checkpoints between the rounds: else they would be too large before the ledger is."""
    rarely = [*RUN, "--set", "checkpoint.every_seconds=1000", "--set", "iterations=150"]
    assert gammafl(*rarely, "--out", str(tmp_path / "whole"), capsys=capsys)[0] == 0
    path, ledger = tmp_path / "run", tmp_path / "whole/rounds.jsonl"
    with files_up_to(ledger.stat().st_size - 10):
        code, _, err = gammafl(*rarely, "--out", str(path), capsys=capsys)
    check_one_line(code, err, "ledger")
    assert "rounds.jsonl" in err
    assert (path / "rounds.jsonl").read_bytes() == ledger.read_bytes()[:-10]
    assert gammafl(*rarely, "--out", str(path), "--resume", capsys=capsys)[0] == 0
    assert result(path) == result(tmp_path / "whole")


def test_a_full_disk_leaves_the_last_checkpoint_as_it_was(
    tmp_path: Path, whole: tuple[Any, ...], capsys: Capture
) -> None:
    path = tmp_path / "run"
    with failing(tensor_files, "replace", 3):
        code, err = run(path, capsys)
    check_one_line(code, err, "third checkpoint")
    assert checkpoints(path) == {checkpoint.LAST: 2, checkpoint.PREVIOUS: 1}
    before = (path / "checkpoint" / checkpoint.LAST).read_bytes()
    with failing(tensor_files, "replace", 1):
        check_one_line(*run(path, capsys), "still full")
    assert (path / "checkpoint" / checkpoint.LAST).read_bytes() == before
    assert run(path, capsys) == (0, "")
    assert result(path) == whole


@contextmanager
def as_nobody() -> Iterator[None]:
    """To root every directory is writable."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A directory that others may look into, unlike pytest's."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def test_a_directory_that_can_not_be_written_is_named_with_what_to_do(
    open_folder: Path, whole: tuple[Any, ...], capsys: Capture
) -> None:
    open_folder.chmod(0o555)
    with as_nobody():
        code, err = run(open_folder / "run", capsys)
    open_folder.chmod(0o755)
    assert code == 2
    assert err.count("\n") == 1
    assert str(open_folder / "run") in err
    assert "choose another --out" in err
    assert list(open_folder.iterdir()) == []


def _interrupted(path: Path, capsys: Capture) -> None:
    with failing(tensor_files, "replace", 3):
        assert run(path, capsys)[0] == 2


@pytest.mark.parametrize("part", ["", "checkpoint"])
def test_a_run_that_has_become_read_only_is_left_as_it_is_and_resumes_later(
    part: str, open_folder: Path, whole: tuple[Any, ...], capsys: Capture
) -> None:
    path = open_folder / "run"
    _interrupted(path, capsys)
    everything = [path, *path.rglob("*")]
    for each in everything:
        each.chmod(0o777)
    locked = [path / part, *(path / part).rglob("*")]
    for each in locked:
        each.chmod(0o555 if each.is_dir() else 0o444)
    with as_nobody():
        code, err = run(path, capsys)
    for each in everything:
        each.chmod(0o755)
    assert (code, err.count("\n")) == (2, 1), err
    assert str(path) in err
    assert "make it writable" in err
    assert checkpoints(path) == {checkpoint.LAST: 2, checkpoint.PREVIOUS: 1}
    assert run(path, capsys) == (0, "")
    assert result(path) == whole

"""What clients have not sent yet is nobody else's to read: not for an instant, whatever the umask."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gammafl.config.layers import make_config
from gammafl.files import private_files
from gammafl.runs import checkpoint
from gammafl.runs.execute import execute

SETTINGS = {"task": "logistic-mini", "iterations": 15, "checkpoint": {"every_seconds": 0}, "residual_memory_mb": 0}
MOMENTS = ("fsync", "replace", "posix_fallocate")
"""Calls of `os` between which all files of a run come and go."""

every_umask = pytest.mark.parametrize("umask", [0, 0o022, 0o077], ids=oct)


def mode(path: Path) -> int:
    return path.lstat().st_mode & 0o777


def open_to_others(*folders: Path) -> dict[str, str]:
    """What is in these folders, and they themselves, that has another mode than 0700 or 0600."""
    there = [path for folder in folders if folder.exists() for path in (folder, *folder.rglob("*"))]
    return {str(path): oct(mode(path)) for path in there if mode(path) != (0o700 if path.is_dir() else 0o600)}


@contextmanager
def watched(umask: int, *folders: Path) -> Iterator[set[str]]:
    """Nothing in these folders is ever open to others, and nothing has to be closed afterwards.

    What was there at any of the moments is in the set.
    """
    seen: set[str] = set()

    def looking(function: Any) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            assert not open_to_others(*folders)
            seen.update(path.name for folder in folders if folder.exists() for path in folder.rglob("*"))
            return function(*args, **kwargs)

        return wrapper

    def unchanged(file: Any, mode: int, **kwargs: Any) -> None:
        assert os.stat(file).st_mode & 0o777 == mode, f"made first and closed afterwards: {file}"

    before = os.umask(umask)
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name in MOMENTS:
                patch.setattr(os, name, looking(getattr(os, name)))
            for name in ("chmod", "fchmod"):
                patch.setattr(os, name, unchanged)
            yield seen
    finally:
        os.umask(before)
    assert not open_to_others(*folders)


@every_umask
def test_checkpoints_and_residuals_of_a_run_are_private_from_the_first_instant(umask: int, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with watched(umask, run / "checkpoint", run / "residuals") as seen:
        execute(make_config(SETTINGS), run)
    assert seen == {"last.safetensors.part", checkpoint.LAST, checkpoint.PREVIOUS} | {
        name for name in seen if name.startswith("residuals-")
    }
    assert any(name.startswith("residuals-") for name in seen)


@every_umask
def test_what_a_run_is_made_for_is_as_open_as_the_umask_leaves_it(umask: int, tmp_path: Path) -> None:
    with watched(umask):
        execute(make_config(SETTINGS), tmp_path / "run")
    results = ("model.safetensors", "averaged-model.safetensors", "summary.json", "rounds.jsonl", "config.toml")
    assert {mode(tmp_path / "run" / name) for name in results} == {0o666 & ~umask}


def test_checkpoints_that_were_open_to_others_are_closed_when_a_run_goes_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    execute(make_config(SETTINGS), run)
    (run / "summary.json").unlink()
    (run / "checkpoint").chmod(0o755)
    (run / "checkpoint" / "last.safetensors.part").write_bytes(b"left by a process that was killed")
    (run / "checkpoint" / "last.safetensors.part").chmod(0o644)
    rounds = (run / "rounds.jsonl").read_bytes()
    (run / "checkpoint" / checkpoint.LAST).unlink()  # one round is left to do
    execute(make_config(SETTINGS), run, resume=True)
    assert (run / "rounds.jsonl").read_bytes() == rounds
    assert not open_to_others(run / "checkpoint")


@every_umask
def test_a_directory_is_private_with_all_that_is_missing_above_it(umask: int, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with watched(umask, tmp_path / "a"):
        private_files.make_directory(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()
    assert mode(tmp_path) == 0o755


def test_a_new_file_is_not_the_one_that_somebody_else_has_open(tmp_path: Path) -> None:
    """Neither one that was left open to others nor a link to another place."""
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with (tmp_path / "file").open("rb") as somebody:
        for name in ("file", "link"):
            with private_files.new_file(tmp_path / name) as stream:
                stream.write(np.arange(3, dtype=np.float32).data)
        assert somebody.read() == b"old"
    assert not open_to_others(tmp_path)
    assert not (tmp_path / "link").is_symlink()

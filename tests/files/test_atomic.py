"""A file is replaced as a whole or not at all."""

from contextlib import suppress
from pathlib import Path

import pytest

from gammafl.core.errors import InputError
from gammafl.files.atomic import read_json, replacing, write_atomically
from tests.runs.forging import NO_FILES, not_for_ever, put


class Stop(BaseException):
    """What Ctrl-C raises is no `Exception` either."""


@pytest.mark.parametrize("one_writer", [False, True])
def test_whatever_ends_a_write_leaves_the_old_file_alone(one_writer: bool, tmp_path: Path) -> None:
    path, previous = tmp_path / "file", tmp_path / "previous"
    write_atomically(path, b"old")
    with suppress(Stop), replacing(path, one_writer=one_writer, previous=previous) as stream:
        stream.write(b"new")
        raise Stop
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("file", b"old")]


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(b"half")
    with replacing(tmp_path / "file", one_writer=True) as stream:
        stream.write(b"new")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("file", b"new")]


def test_two_writers_of_one_file_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that ends last wins; neither takes the other's half for a whole."""
    with replacing(tmp_path / "file") as ours:
        ours.write(b"ou")
        monkeypatch.setattr("os.getpid", lambda: 1)
        write_atomically(tmp_path / "file", b"theirs")
        ours.write(b"rs")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("file", b"ours")]


def test_the_file_before_is_kept_under_another_name(tmp_path: Path) -> None:
    for content in (b"1", b"2", b"3"):
        with replacing(tmp_path / "file", previous=tmp_path / "previous") as stream:
            stream.write(content)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"file": b"3", "previous": b"2"}


@pytest.mark.parametrize("kind", sorted(NO_FILES.keys() - {"a link to nothing", "a link to itself"}))
def test_what_is_no_file_is_not_waited_for(kind: str, tmp_path: Path) -> None:
    put(kind, tmp_path / "facts.json")
    with not_for_ever(), pytest.raises(InputError, match=r"is damaged \(it is not a regular file"):
        read_json(tmp_path / "facts.json")

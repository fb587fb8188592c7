"""Data sets: found in order, verified, stored whole or not at all."""

import gzip
import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import gammafl as gf
from gammafl.files.atomic import write_atomically
from gammafl.tasks.data import catalogue
from gammafl.tasks.data.catalogue import DataSet, Say, fetch, load_files
from gammafl.tasks.data.files import DataFile
from gammafl.tasks.data.images import fashion_mnist_mini

CONTENT = {"a-ubyte": b"first file", "b-ubyte": b"second file"}


class Shelf:
    """A source that hands out what it is told to."""

    manager: ClassVar[str] = "apt"

    def __init__(self, contents: dict[str, bytes] | None, label: str = "the shelf") -> None:
        self.contents = contents
        self.label = label
        self.asked = 0

    def fetch(self, folder: Path, say: Say) -> None:
        self.asked += 1
        if self.contents is None:
            raise gf.InputError("the shelf is empty")
        for name, content in self.contents.items():
            (folder / name).write_bytes(content)


def dataset(address: Shelf | None = None, *packages: Shelf) -> DataSet:
    files = tuple(DataFile(n, len(c), hashlib.sha256(c).hexdigest()) for n, c in CONTENT.items())
    return DataSet("two-files", "for tests", "none", files, address=address, packages=packages)


def test_the_official_address_fills_the_cache_and_is_asked_once() -> None:
    said: list[str] = []
    shelf, package = Shelf(CONTENT), Shelf(CONTENT, "the package")
    data = dataset(shelf, package)
    assert data.present() == "no"
    for _ in range(2):
        assert load_files(data, None, said.append) == CONTENT
    assert (shelf.asked, package.asked) == (1, 0)
    assert data.present() == "yes"
    assert "from the shelf" in said[-2]
    assert "from the cache" in said[-1]


@pytest.mark.parametrize("address", [None, Shelf(None), Shelf({**CONTENT, "a-ubyte": b"something else"})])
def test_a_package_manager_is_asked_only_by_those_who_name_it(address: Shelf | None) -> None:
    package = Shelf(CONTENT, "the package")
    data = dataset(address, package)
    with pytest.raises(
        gf.InputError, match=r"data get two-files --via apt \(the package\).*--from DIR.*--data-dir DIR"
    ):
        load_files(data, None, lambda _: None)
    assert (package.asked, data.present()) == (0, "no")
    assert fetch(data, lambda _: None, via="apt") == CONTENT
    assert (package.asked, data.present()) == (1, "yes")


def test_why_the_address_or_the_package_failed_is_said() -> None:
    with pytest.raises(gf.InputError, match=r"the shelf is empty\. Instead: .*--data-dir"):
        load_files(dataset(Shelf(None)), None, lambda _: None)
    with pytest.raises(gf.InputError, match=r"a-ubyte has 10 bytes with sha256 .* Instead: "):
        load_files(dataset(Shelf({**CONTENT, "a-ubyte": b"other file"})), None, lambda _: None)
    with pytest.raises(gf.InputError, match="the shelf is empty") as failure:
        fetch(dataset(None, Shelf(None)), lambda _: None, via="apt")
    assert "--via" not in str(failure.value)  # no other route is left


def test_a_route_that_is_none_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(gf.InputError, match=r"did you mean 'apt'.*it has --via apt"):
        fetch(dataset(Shelf(CONTENT), Shelf(CONTENT)), lambda _: None, via="atp")
    with pytest.raises(gf.InputError, match="no package manager has two-files"):
        fetch(dataset(Shelf(CONTENT)), lambda _: None, via="apt")


def test_the_users_directory_comes_first_plain_or_gzipped_at_any_depth(tmp_path: Path) -> None:
    (tmp_path / "deep/er").mkdir(parents=True)
    (tmp_path / "deep/er/a-ubyte").write_bytes(CONTENT["a-ubyte"])
    (tmp_path / "b-ubyte.gz").write_bytes(gzip.compress(CONTENT["b-ubyte"]))
    shelf = Shelf(CONTENT)
    assert load_files(dataset(shelf), tmp_path, lambda _: None) == CONTENT
    assert shelf.asked == 0


def test_a_missing_file_of_the_users_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "a-ubyte").write_bytes(CONTENT["a-ubyte"])
    with pytest.raises(gf.InputError, match="has no b-ubyte"):
        load_files(dataset(), tmp_path, lambda _: None)


@pytest.mark.parametrize("damage", [b"", b"first fil", b"first file!", b"First file"])
def test_a_damaged_cache_is_detected_and_named(damage: bytes) -> None:
    data = dataset(Shelf(CONTENT))
    load_files(data, None, lambda _: None)
    (data.cache / "a-ubyte").write_bytes(damage)
    with pytest.raises(gf.InputError, match=r"two-files(/a-ubyte is damaged| is damaged.*a-ubyte)"):
        load_files(data, None, lambda _: None)
    fetch(data, lambda _: None)
    assert load_files(data, None, lambda _: None) == CONTENT


def test_a_truncated_gzip_is_detected_and_named(tmp_path: Path) -> None:
    for name, content in CONTENT.items():
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content)[:-9])
    with pytest.raises(gf.InputError, match=r"a-ubyte\.gz is damaged"):
        load_files(dataset(), tmp_path, lambda _: None)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "file"
    write_atomically(target, b"old")

    def fail(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_atomically(target, b"new")
    assert target.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_the_embedded_part_is_balanced_and_of_the_right_shape() -> None:
    data = fashion_mnist_mini()
    assert data.train.shape == (5000, 1, 28, 28)
    assert data.test.shape == (2000, 1, 28, 28)
    assert data.train.dtype == np.uint8
    np.testing.assert_array_equal(np.bincount(data.train_labels), 500)
    np.testing.assert_array_equal(np.bincount(data.test_labels), 200)
    assert data.train.mean() / 255 == pytest.approx(0.28604, abs=0.01)  # the whole data set's mean


@pytest.mark.parametrize("more", [-3, 0, 3])
def test_a_cached_file_without_an_official_checksum_is_verified_by_its_own_at_any_size_near_the_known(
    more: int,
) -> None:
    data = replace(dataset(Shelf(CONTENT)), files=tuple(DataFile(name, len(c) + more) for name, c in CONTENT.items()))
    for _ in ("the address", "the cache"):
        assert load_files(data, None, lambda _: None) == CONTENT
    (data.cache / "b-ubyte").write_bytes(CONTENT["b-ubyte"][:5])
    with pytest.raises(gf.InputError, match=r"damaged.*b-ubyte"):
        load_files(data, None, lambda _: None)


def test_several_files_of_the_name_are_refused(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        for name, content in CONTENT.items():
            (tmp_path / folder / name).write_bytes(content)
    with pytest.raises(gf.InputError, match="several a-ubyte"):
        load_files(dataset(), tmp_path, lambda _: None)


def test_whatever_a_damaged_file_breaks_is_named(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "pacs32.npz", "w") as archive:
        archive.writestr("class_names.npy", "rubbish")
    with pytest.raises(gf.InputError, match=r"pacs in .* is damaged"):
        load_files(catalogue.PACS, tmp_path, lambda _: None)


def test_what_the_cache_would_refuse_as_too_large_does_not_get_into_it(tmp_path: Path) -> None:
    data = replace(dataset(), files=tuple(DataFile(name, 2) for name in CONTENT))  # no sha256: 2 bytes, roughly
    for name, content in CONTENT.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(gf.InputError, match="more than 8 bytes"):
        load_files(data, tmp_path, lambda _: None)

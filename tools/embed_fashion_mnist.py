"""Makes src/gammafl/data/fashion-mnist-mini.npz from the first images of each class, in the official order.

python tools/embed_fashion_mnist.py
"""

from pathlib import Path

import numpy as np

from gammafl.tasks.data.images import Array, fashion_mnist

TARGET = Path(__file__).parents[1] / "src/gammafl/data/fashion-mnist-mini.npz"


def first_of_each(images: Array, labels: Array, count: int) -> tuple[Array, Array]:
    """The first `count` images of each class with their labels, in the order of `images`."""
    rows = np.sort(np.concatenate([np.flatnonzero(labels == label)[:count] for label in range(10)]))
    return images[rows], labels[rows]


if __name__ == "__main__":
    data = fashion_mnist(None, print)
    train, train_labels = first_of_each(data.train, data.train_labels, 500)
    test, test_labels = first_of_each(data.test, data.test_labels, 200)
    np.savez_compressed(TARGET, train=train, train_labels=train_labels, test=test, test_labels=test_labels)
    print(f"{TARGET}: {TARGET.stat().st_size / 1e6:.1f} MB")

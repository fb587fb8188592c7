"""Data sets that come as trees of image files, with natural groups: PACS and Flickr-Mammal.

The images are decoded once to 32×32 and stored as one npz file with the arrays `images`, `labels`, `groups` (a natural
partition splits by them), `test` (true for test samples), `class_names` and `group_names`.
"""

import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gammafl import seeds
from gammafl.core.errors import InputError
from gammafl.tasks.data.archives import require_inflated_within, tar_members
from gammafl.tasks.data.files import find, read_plain

Entry = tuple[PurePosixPath, bytes]
"""The path of a file in its tree, and its content."""
Image32 = NDArray[np.uint8]

IMAGE_ENDINGS = {".jpg", ".jpeg", ".png"}
DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
MOST_BYTES_OF_PACS = 128_000_000
"""The limit for PACS as arrays of 32×32, which have 31 MB."""
MOST_BYTES_OF_AN_IMAGE = 64_000_000
TEST_SHARE = 0.2
"""The share of each class in each group that is for testing, if the data set has no split of its own."""


def read_pacs(folder: Path) -> dict[str, bytes]:
    """PACS from pacs32.npz, or from <domain>/<class>/<file> at any depth."""
    if (path := find(folder, "pacs32.npz")) is not None:
        content = read_plain(path, MOST_BYTES_OF_PACS)
        require_inflated_within(content, MOST_BYTES_OF_PACS, path)
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            if "groups" in arrays:  # written by this module
                return {"pacs32.npz": content}
            names = [arrays[key].tolist() for key in ("class_names", "domain_names")]
            return _packed("pacs32.npz", arrays["images"], arrays["labels"], arrays["domains"], None, *names)
    found = [
        (path.parts[-3], path.parts[-2], _to_32(read_plain(path, MOST_BYTES_OF_AN_IMAGE)))
        for path in sorted(folder.glob("**/*"))
        if path.suffix.lower() in IMAGE_ENDINGS and len(path.parts) > 2 and path.parts[-3] in DOMAINS
    ]
    if not found:
        raise InputError(f"{folder} has neither pacs32.npz nor <domain>/<class>/<image> with domains {DOMAINS}")
    domains, classes, images = zip(*found, strict=True)
    return _packed_by_name("pacs32.npz", images, classes, domains, None)


def read_flickr_mammal(folder: Path) -> dict[str, bytes]:
    """geo_animal/images/<class>/<subcontinent>/<file>, extracted or as geo_animal.tar.gz.

    The samples that are named in the lists val.txt.N are for testing.
    """
    images: list[tuple[PurePosixPath, Image32]] = []
    lists: list[bytes] = []
    for path, content in _geo_animal(folder):
        if _is_list(path):
            lists.append(content)
        else:
            images.append((path, _to_32(content)))  # now, because the encoded images would not fit into memory
    if not images:
        raise InputError(f"geo_animal in {folder} has no images/<class>/<subcontinent>/<file>; is it complete?")
    in_test = {line.split()[0] for text in lists for line in text.decode().splitlines() if line.strip()}
    test = [_is_listed(path, in_test) for path, _ in images]
    if in_test and not any(test):
        raise InputError(f"the lists of geo_animal name other files, such as {min(in_test)}, than {images[0][0]}")
    return _packed_by_name(
        "flickr-mammal-32.npz",
        [image for _, image in images],
        [path.parts[1] for path, _ in images],
        [path.parts[2] for path, _ in images],
        test if in_test else None,
    )


def _geo_animal(folder: Path) -> Iterator[Entry]:
    """Yields all images and all lists of test samples, with their paths below geo_animal/."""
    if (tree := find(folder, "geo_animal")) is not None and tree.is_dir():
        for file in sorted(tree.glob("**/*")):
            path = PurePosixPath(file.relative_to(tree).as_posix())
            if _is_needed(path) and file.is_file():
                yield path, read_plain(file, MOST_BYTES_OF_AN_IMAGE)
    elif (archive := find(folder, "geo_animal.tar")) is not None:
        in_all = MOST_BYTES_OF_AN_IMAGE + 4 * archive.stat().st_size  # photographs hardly compress
        for name, content in tar_members(archive, lambda n: _is_needed(_below(n)), MOST_BYTES_OF_AN_IMAGE, in_all):
            yield _below(name), content
    else:
        found = ", ".join(sorted(p.name for p in folder.iterdir())[:5]) or "nothing"
        raise InputError(f"{folder} has neither geo_animal/ nor geo_animal.tar.gz (found: {found})")


def _below(name: str) -> PurePosixPath:
    """The path below geo_animal/ of a member of the archive."""
    return PurePosixPath(*PurePosixPath(name).parts[1:])


def _is_needed(path: PurePosixPath) -> bool:
    """Whether `path` is a list of test samples or images/<class>/<subcontinent>/<file>."""
    return _is_list(path) or (
        path.suffix.lower() in IMAGE_ENDINGS and len(path.parts) == 4 and path.parts[0] == "images"
    )


def _is_list(path: PurePosixPath) -> bool:
    return re.fullmatch(r"val\.txt\.\d+", path.name) is not None


def _is_listed(path: PurePosixPath, listed: set[str]) -> bool:
    """Whether a list contains `path`, which may be relative to images/ or to geo_animal/."""
    return str(path) in listed or str(path.relative_to("images")) in listed


def _packed_by_name(
    name: str, images: Iterable[Image32], classes: Iterable[str], groups: Iterable[str], test: list[bool] | None
) -> dict[str, bytes]:
    class_names, labels = np.unique(list(classes), return_inverse=True)
    group_names, group_numbers = np.unique(list(groups), return_inverse=True)
    return _packed(
        name, np.stack(list(images)), labels, group_numbers, test, class_names.tolist(), group_names.tolist()
    )


def _packed(
    name: str, images: Any, labels: Any, groups: Any, test: Any, class_names: list[str], group_names: list[str]
) -> dict[str, bytes]:
    stream = io.BytesIO()
    np.savez(
        stream,
        images=np.asarray(images, np.uint8),
        labels=np.asarray(labels, np.uint8),
        groups=np.asarray(groups, np.uint8),
        test=np.asarray(stratified(labels, groups) if test is None else test, np.bool_),
        class_names=np.array(class_names),
        group_names=np.array(group_names),
    )
    return {name: stream.getvalue()}


def stratified(labels: NDArray[np.integer], groups: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Picks `TEST_SHARE` of each class in each group at random, the same samples on every machine."""
    rng = seeds.generator(0, "test split")
    test = np.zeros(len(labels), np.bool_)
    for group, label in sorted({(int(g), int(c)) for g, c in zip(groups, labels, strict=True)}):
        rows = rng.permutation(np.flatnonzero((groups == group) & (labels == label)))
        test[rows[: round(TEST_SHARE * len(rows))]] = True
    return test


def _to_32(content: bytes) -> Image32:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(content)) as image:
            small = image.convert("RGB").resize((32, 32), Image.Resampling.BILINEAR)
    except (UnidentifiedImageError, OSError) as error:
        raise InputError(f"an image can't be decoded ({error}); fetch the data set again") from None
    return np.asarray(small, np.uint8).transpose(2, 0, 1)

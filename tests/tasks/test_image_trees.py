"""PACS and Flickr-Mammal: trees of the official shape become arrays with their natural groups."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import gammafl as gf
from gammafl.tasks.data.catalogue import FLICKR_MAMMAL, PACS
from gammafl.tasks.data.image_trees import read_flickr_mammal, read_pacs
from gammafl.tasks.data.images import Images, grouped_images


def write_image(path: Path, shade: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (50, 40), (shade, shade, shade)).save(path)


def pacs_tree(root: Path) -> None:
    for d, domain in enumerate(("art_painting", "cartoon", "photo", "sketch")):
        for c, name in enumerate(("dog", "house")):
            for i in range(5):
                write_image(root / f"kfold/{domain}/{name}/pic_{i}.png", 40 * d + 20 * c)


def load(name: str, folder: Path) -> Images:
    return grouped_images(PACS if name == "pacs" else FLICKR_MAMMAL, folder, lambda _: None)


def test_a_tree_of_pacs_gives_classes_domains_and_a_stratified_test_set(tmp_path: Path) -> None:
    pacs_tree(tmp_path)
    data = load("pacs", tmp_path)
    assert data.train.shape == (32, 3, 32, 32)
    assert data.train_groups is not None
    np.testing.assert_array_equal(data.train[:, 0, 0, 0], 40 * data.train_groups + 20 * data.train_labels)
    np.testing.assert_array_equal(np.bincount(data.test_labels), [4, 4])  # a fifth of each class in each domain


def test_what_was_packed_is_read_as_the_tree_was(tmp_path: Path) -> None:
    pacs_tree(tmp_path / "tree")
    with np.load(io.BytesIO(read_pacs(tmp_path / "tree")["pacs32.npz"])) as packed:
        arrays = {key: packed[key] for key in ("images", "labels", "class_names")}
        np.savez(tmp_path / "pacs32.npz", domains=packed["groups"], domain_names=packed["group_names"], **arrays)
    assert read_pacs(tmp_path) == read_pacs(tmp_path / "tree")


def geo_animal(root: Path) -> None:
    """geo_animal/ with two mammals on three subcontinents, and the lists of the archive."""
    lines = []
    for c, mammal in enumerate(("bear", "fox")):
        for s, place in enumerate(("eastern-asia", "northern-europe", "south-america")):
            for i in range(3):
                write_image(root / f"geo_animal/images/{mammal}/{place}/{i}.jpg", 60 * s + 30 * c)
                lines.append((i, f"{mammal}/{place}/{i}.jpg {c}\n"))
    lists = root / "geo_animal/13parts_skewed"
    lists.mkdir()
    (lists / "train.txt.0").write_text("".join(line for i, line in lines if i))
    (lists / "val.txt.0").write_text("".join(line for i, line in lines if not i))


@pytest.mark.parametrize("packed", [False, True], ids=["extracted", "tar.gz"])
def test_geo_animal_gives_mammals_by_subcontinent_and_its_own_test_set(packed: bool, tmp_path: Path) -> None:
    geo_animal(tmp_path)
    if packed:
        with tarfile.open(tmp_path / "geo_animal.tar.gz", "w:gz") as archive:
            archive.add(tmp_path / "geo_animal", "geo_animal")
        (tmp_path / "only").mkdir()
        (tmp_path / "geo_animal.tar.gz").rename(tmp_path / "only/geo_animal.tar.gz")
    data = load("flickr", tmp_path / "only" if packed else tmp_path)
    assert (len(data.train), len(data.test)) == (12, 6)
    assert data.train_groups is not None
    np.testing.assert_array_equal(np.bincount(data.train_groups), [4, 4, 4])
    shades = 60 * data.train_groups.astype(int) + 30 * data.train_labels
    np.testing.assert_allclose(data.train[:, 0, 0, 0], shades, atol=2)  # JPEG


def test_other_trees_are_refused_with_what_was_found(tmp_path: Path) -> None:
    (tmp_path / "something").mkdir()
    with pytest.raises(gf.InputError, match="found: something"):
        read_flickr_mammal(tmp_path)
    (tmp_path / "geo_animal").mkdir()
    with pytest.raises(gf.InputError, match="no images/<class>/<subcontinent>/<file>"):
        read_flickr_mammal(tmp_path)
    with pytest.raises(gf.InputError, match="has neither pacs32"):
        read_pacs(tmp_path)


def test_lists_that_name_other_files_and_images_that_are_none_are_refused(tmp_path: Path) -> None:
    geo_animal(tmp_path)
    (tmp_path / "geo_animal/13parts_skewed/val.txt.0").write_text("wolf/moon/1.jpg 0\n")
    with pytest.raises(gf.InputError, match="wolf/moon"):
        read_flickr_mammal(tmp_path)
    (tmp_path / "geo_animal/images/fox/south-america/0.jpg").write_bytes(b"no image")
    (tmp_path / "geo_animal/13parts_skewed/val.txt.0").unlink()
    with pytest.raises(gf.InputError, match="can't be decoded"):
        read_flickr_mammal(tmp_path)

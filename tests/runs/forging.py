"""Files that nobody honest wrote: with a right checksum, and with content that is not what it should be."""

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from gammafl.files import tensor_files

DEEP = "[" * 100_000 + "]" * 100_000
"""More nesting than any reader of JSON or TOML follows."""

WORDS = st.sampled_from(["", "x", "²", "..", "a/b", "float32", "residual.1", "\x00", "a\nb"]) | st.text(max_size=4)
NUMBERS = st.sampled_from([0, -1, 1, 2**31, 2**62, 2**63, -(2**63), 10**400]) | st.integers() | st.floats()
ODD = st.recursive(
    st.none() | st.booleans() | NUMBERS | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
"""Any JSON."""


def odd_tensors(dim: int) -> st.SearchStrategy[Any]:
    """Of types, shapes and values that a vector of `dim` numbers, or a message, may not have; and some that it may."""
    shapes = st.sampled_from([(dim,), (dim + 1,), (1,), (dim, 1), (1, dim), ()])
    values = st.sampled_from([0.0, 1.0, -3e38, 3e38, float("nan"), float("inf")])
    floats = st.builds(lambda shape, value: np.full(shape, value, np.float32), shapes, values)
    return floats | st.binary(min_size=1, max_size=80).map(lambda content: np.frombuffer(content, np.uint8))


@st.composite
def changes(draw: st.DrawFn, facts: dict[str, Any], names: list[str], dim: int) -> Callable[[Any, Any], Any]:
    """A function that spoils facts and tensors, in one place or in several."""
    spoilt: list[tuple[str, list[str], Any]] = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["fact", "no fact", "tensor", "no tensor", "name", "anything"]))
        if kind == "fact":
            place = draw(st.sampled_from(list(facts)))
            below = facts[place] if isinstance(facts[place], dict) else {}
            path = [place, draw(st.sampled_from([*below]))] if below and draw(st.booleans()) else [place]
            spoilt.append((kind, path, draw(ODD)))
        elif kind == "no fact":
            spoilt.append((kind, [draw(st.sampled_from(list(facts)))], None))
        elif kind == "tensor":
            spoilt.append((kind, [draw(st.sampled_from(names) | WORDS)], draw(odd_tensors(dim))))
        elif kind == "no tensor":
            spoilt.append((kind, [draw(st.sampled_from(names))], None))
        elif kind == "name":
            endings = st.sampled_from(["1", "01", "-1", "²", "x", "", "1_0", " 1", "9" * 30, "99"])
            start = draw(st.sampled_from(["residual.", "lost.", "fixed.", "open"]))
            spoilt.append((kind, [draw(st.sampled_from(names)), start + draw(endings)], None))
        else:
            spoilt.append((kind, [draw(WORDS)], draw(ODD)))

    def apply(old_facts: Any, old_tensors: Any) -> Any:
        new_facts, new_tensors = dict(old_facts), dict(old_tensors)
        for kind, path, value in spoilt:
            if kind == "fact" and len(path) == 2 and isinstance(new_facts.get(path[0]), dict):
                new_facts[path[0]] = {**new_facts[path[0]], path[1]: value}
            elif kind in ("fact", "anything"):
                new_facts[path[0]] = value
            elif kind == "no fact":
                new_facts.pop(path[0], None)
            elif kind == "tensor":
                new_tensors[path[0]] = value
            elif kind == "no tensor":
                new_tensors.pop(path[0], None)
            elif path[0] in new_tensors:
                new_tensors[path[1]] = new_tensors.pop(path[0])
        return new_facts, new_tensors

    return apply


def forge(path: Path, facts: Any, tensors: Any) -> None:
    """A file of these, with a right checksum."""
    tensor_files.replace(path, dict(tensors), {key: value for key, value in facts.items() if key != "checksum"})


def forge_header(path: Path, text: str, kind: str = "F32") -> None:
    """A file whose facts are `text`, whatever that is, and which has a tensor of a type."""
    size = {"F64": 8, "BF16": 2, "BOOL": 1, "F32": 4}[kind]
    model = {"dtype": kind, "shape": [50], "data_offsets": [0, 50 * size]}
    header = json.dumps({"__metadata__": {"gammafl": text}, "model": model}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(50 * size))


def _socket(path: Path) -> None:
    """By a short name: the address of a socket may not be long."""
    here = os.getcwd()
    os.chdir(path.parent)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)
    os.chdir(here)


NO_FILES: dict[str, Callable[[Path], Any]] = {
    "a pipe": os.mkfifo,
    "a directory": Path.mkdir,
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to nothing": lambda path: path.symlink_to(path.with_name("nothing")),
    "a device that never ends": lambda path: path.symlink_to("/dev/zero"),
    "a socket": _socket,
}
"""What may have a file's name and is none."""


def put(kind: str, path: Path) -> None:
    with suppress(FileNotFoundError):
        path.unlink()
    NO_FILES[kind](path)


@contextmanager
def not_for_ever(seconds: float = 60) -> Iterator[None]:
    """What waits for a pipe is interrupted."""

    def stop(*_: object) -> None:
        raise AssertionError("it waits for ever")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def one_line(text: str) -> bool:
    return "\n" not in text and len(text) < 1000

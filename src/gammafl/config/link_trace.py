"""A trace of links: a CSV file, or a file of JSON lines, with a link for each client. docs/link.md has the format."""

import csv
import hashlib
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gammafl.config.link import DURATION, EXAMPLE, RATE, Link, duration_of, rate_of
from gammafl.core.errors import InputError, require

ENDINGS = (".csv", ".jsonl")
REQUIRED, OPTIONAL = ("client", "up", "down"), ("latency", "compute", "round")
LETTERS = 16
"""The letters of a digest that are kept."""

Reader = Callable[[re.Match[str]], float]


@dataclass(frozen=True)
class LinkTrace:
    """A link for each client. It may change from a given round on."""

    name: str
    """The name of the file."""

    digest: str
    links: Mapping[int, tuple[tuple[int, Link], ...]]
    """Client → (first round, link), in the order of rounds. The first round is 1."""

    def of(self, client: int, round_number: int) -> Link:
        """The link of a client in a round. The first round is 1."""
        rows = self.links[client]
        return rows[bisect_right(rows, round_number, key=lambda row: row[0]) - 1][1]

    def require_clients(self, count: int) -> None:
        """Raises an error unless each of `count` clients has a link from the first round on."""
        missing = [client for client in range(count) if client not in self.links]
        if missing:
            raise InputError(f"{self.name} has no link for client {missing[0]} of 0 to {count - 1}; add its line")

    def __str__(self) -> str:
        return f"{self.name}, digest {self.digest}"


Links = Link | LinkTrace


def is_trace(text: str) -> bool:
    """Whether `text` is the name of a trace file."""
    return text.endswith(ENDINGS)


def as_links(value: Any) -> Links:
    """`value` as links: a text, the name of a trace file, or links.

    >>> as_links("256 kbit/s")
    Link(up_bits_per_second=256000.0, down_bits_per_second=256000.0, latency_seconds=0.0, compute_seconds=0.0)
    """
    if isinstance(value, Link | LinkTrace):
        return value
    require(isinstance(value, str | Path), f"link must be a text such as {EXAMPLE!r} or gf.Link(…), got {value!r}")
    text = str(value)
    return read_trace(Path(text)) if is_trace(text) else Link.parse(text)


def read_trace(path: Path) -> LinkTrace:
    """The links in a CSV file or in a file of JSON lines; see docs/link.md."""
    try:
        content = path.read_bytes()
        text = content.decode("utf-8")
    except OSError as error:
        raise InputError(f"can't read the links in {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a text in UTF-8") from None
    rows: dict[int, dict[int, Link]] = {}
    for where, table in _csv_rows(path, text) if path.suffix == ".csv" else _json_rows(path, text):
        client, first, link = _row(where, table)
        fresh = first not in rows.setdefault(client, {})
        require(fresh, f"{where}: client {client} has a link from round {first} on already")
        rows[client][first] = link
    columns = f"{', '.join(REQUIRED)}, and optionally {', '.join(OPTIONAL)}"
    require(bool(rows), f"{path} has no links; its columns are {columns}")
    for client, links in rows.items():
        advice = "give it a line without a round, or of round 1"
        require(1 in links, f"{path}: client {client} has no link before round {min(links)}; {advice}")
    ordered = {client: tuple(sorted(links.items(), key=lambda row: row[0])) for client, links in rows.items()}
    return LinkTrace(path.name, hashlib.sha256(content).hexdigest()[:LETTERS], ordered)


def _csv_rows(path: Path, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    reader = csv.DictReader(text.splitlines(), skipinitialspace=True, strict=True)
    try:
        for table in reader:
            where = f"{path}, line {reader.line_num}"
            require(None not in table, f"{where}: it has more values than there are columns")
            yield where, {key.strip(): value.strip() for key, value in table.items() if value and value.strip()}
    except csv.Error as error:
        raise InputError(f"{path} is not CSV: {error}") from None


def _json_rows(path: Path, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            table = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where} is not JSON: {error}") from None
        require(isinstance(table, dict), f"{where} is not a JSON object")
        yield where, table


def _row(where: str, table: Mapping[str, Any]) -> tuple[int, int, Link]:
    """(client, first round, link) of a line."""
    known = (*REQUIRED, *OPTIONAL)
    if strange := [name for name in table if name not in known]:
        raise InputError(f"{where}: there is no column {strange[0]!r}; known: {', '.join(known)}")
    if missing := [name for name in REQUIRED if name not in table]:
        raise InputError(f"{where}: {missing[0]} is missing")
    values = {
        f"{name}_bits_per_second": _cell(where, name, table[name], RATE, rate_of, "a speed such as 1 Mbit/s")
        for name in ("up", "down")
    } | {
        f"{name}_seconds": _cell(where, name, table[name], DURATION, duration_of, "a time such as 50 ms")
        for name in ("latency", "compute")
        if name in table
    }
    try:
        link = Link(**values)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    return _whole(where, "client", table["client"], 0), _whole(where, "round", table.get("round", 1), 1), link


def _cell(where: str, name: str, value: Any, pattern: re.Pattern[str], read: Reader, wanted: str) -> float:
    found = pattern.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise InputError(f"{where}: {name} must be {wanted}, got {value!r}")
    return read(found)


def _whole(where: str, name: str, value: Any, least: int) -> int:
    text = str(value)
    if isinstance(value, bool) or not re.fullmatch("[0-9]{1,15}", text) or int(text) < least:
        raise InputError(f"{where}: {name} must be a whole number of at least {least}, got {value!r}")
    return int(text)

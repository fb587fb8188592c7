"""Prepares docstrings for the site: tables of arguments and examples become sections in Google's style.

In the code, a table looks as `gammafl methods NAME` prints it:

    keep     the kept fraction of the entries
    values   "f32", or fewer bits
"""

import re
from collections.abc import Iterator
from typing import Any

import griffe

ROW = re.compile(r"(\w+(?:, \w+)*) {2,}(\S.*)")
PAGE = re.compile(r"`?\bdocs/([\w-]+)\.md`?")


class DocstringTables(griffe.Extension):
    """Rewrites each docstring of a function or class before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None and not obj.is_module:
            names = {parameter.name for parameter in getattr(obj, "parameters", ())}
            names |= {name for name, member in obj.members.items() if member.is_attribute}
            obj.docstring.value = sections(obj.docstring.value, names)


def sections(text: str, names: set[str]) -> str:
    """`text` with "Args:" and "Examples:" in place of its tables and its examples.

    A table whose first column has other names than arguments becomes a list.
    """
    paragraphs = [_paragraph(part, names) for part in re.split(r"\n{2,}", text)]
    return PAGE.sub(r"[\1](../\1.md)", "\n\n".join(paragraphs))


def _paragraph(text: str, names: set[str]) -> str:
    lines = text.split("\n")
    if lines[0].startswith(">>>"):
        return "\n".join(["Examples:", *(f"    {line}" for line in lines)])
    if not ROW.fullmatch(lines[0]) or any(not ROW.fullmatch(line) and not line.startswith("  ") for line in lines):
        return text
    rows = list(_rows(lines))
    if all(name.split(",")[0] in names for name, _ in rows):
        return "\n".join(["Args:", *(f"    {name}: {meaning}" for name, meaning in rows)])
    return "\n".join(f"- `{name}`: {meaning}" for name, meaning in rows)


def _rows(lines: list[str]) -> Iterator[tuple[str, str]]:
    name, words = "", list[str]()
    for line in lines:
        if row := ROW.fullmatch(line):
            if name:
                yield name, " ".join(words)
            name, words = row[1], [row[2]]
        else:
            words.append(line.strip())
    yield name, " ".join(words)

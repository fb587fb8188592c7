"""docs/troubleshooting.md quotes messages as they are in the source."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import gammafl

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/troubleshooting.md").read_text("utf-8")
MESSAGES = re.findall(r"^    (\S.*)$", PAGE, flags=re.MULTILINE)


def texts(path: Path) -> Iterator[str]:
    """The texts of a file; what an f-string fills in is "…"."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


TEXTS = [text for path in Path(gammafl.__file__).parent.rglob("*.py") for text in texts(path)]


def has(text: str, message: str) -> bool:
    """Whether `text` has the fixed parts of `message`, one after the other."""
    parts = [part.strip() for part in re.split(r"…", message) if part.strip(" .;,'")]
    return re.search(".*?".join(map(re.escape, parts)), text, flags=re.DOTALL) is not None


def test_the_most_frequent_messages_are_explained() -> None:
    assert len(MESSAGES) >= 12


def test_each_message_is_in_the_source() -> None:
    assert [message for message in MESSAGES if not any(has(text, message) for text in TEXTS)] == []


def test_each_message_has_a_cause() -> None:
    sections = re.split(r"^    \S.*$", PAGE, flags=re.MULTILINE)[1:]
    assert [section for section in sections if "**Cause" not in section] == []

"""Which test holds a method to its paper: a test says so itself, and docs/methods.md names it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

Test = TypeVar("Test", bound=Callable[..., None])

TESTS = Path(__file__).parent.parent
VECTORS = Path(__file__).parent / "vectors"
MARKED = re.compile(r"^@reference\(([^)]*)\)\n(?:@.*\n|    .*\n|\).*\n)*?def (test_\w+)", re.MULTILINE)


def reference(*names: str) -> Callable[[Test], Test]:
    """Above a test that holds these methods to an independent reference; it stands on one line."""
    return lambda test: test


def reference_tests() -> dict[str, list[tuple[str, str]]]:
    """Method → (file, test) of its references."""
    found: dict[str, list[tuple[str, str]]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for names, test in MARKED.findall(path.read_text("utf-8")):
            for name in re.findall(r'"([^"]+)"', names):
                found.setdefault(name, []).append((path.relative_to(TESTS.parent).as_posix(), test))
    return found


def recorded(name: str) -> Any:
    """Inputs and outputs of public code, which says where they are from."""
    return json.loads((VECTORS / f"{name}.json").read_text())

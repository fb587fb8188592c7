"""Imports go one way: cli → studies → bench → runtimes → federated → tasks → config → methods → core; report is a side
wing.

`studies` stand on `bench` for one thing: the study `cost` asks it for times. `arguments` is what commands share.
"""

import ast
from pathlib import Path

import pytest

import gammafl

ROOT = Path(gammafl.__file__).parent
LIGHT = {"seeds", "config", "methods"}
ALLOWED = {
    "core": {"core"},
    "methods": {"core", "methods"},
    "config": {"core", "methods", "settings", "wording"},
    "settings": set(),
    "wording": {"core"},
    "seeds": set(),
    "tasks": {"core", "tasks"} | LIGHT,
    "federated": {"core", "tasks", "federated"} | LIGHT,
    "report": {"core", "report"} | LIGHT,
    "runtimes": {"core", "tasks", "federated", "runtimes", "report"} | LIGHT,
    "flower": {"federated", "runtimes"},
    "studies": {"core", "tasks", "federated", "runtimes", "studies", "report", "bench", "arguments"} | LIGHT,
    "bench": {"core", "tasks", "federated", "runtimes", "report", "bench", "arguments"} | LIGHT,
}


def imports(path: Path) -> set[str]:
    """The rooms of the package that a file imports from."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "gammafl":
            parts = node.module.split(".")
            rooms |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            rooms |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("gammafl.")}
    return rooms


@pytest.mark.parametrize("room", ALLOWED)
def test_imports_go_one_way(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py")) or [ROOT / f"{room}.py"]
    against = {str(file.relative_to(ROOT)): imports(file) - ALLOWED[room] for file in files}
    assert not {file: rooms for file, rooms in against.items() if rooms}


def roots(path: Path) -> set[str]:
    """The packages that a file imports from."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    plain = {alias.name.split(".")[0] for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module.split(".")[0] for node in nodes if isinstance(node, ast.ImportFrom) and node.module}


def test_core_knows_neither_torch_nor_files() -> None:
    for file in (ROOT / "core").glob("*.py"):
        assert not roots(file) & {"torch", "pathlib", "io", "safetensors", "pydantic"}, file


def test_every_public_name_can_be_used() -> None:
    for name in gammafl.__all__:
        assert getattr(gammafl, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        gammafl.nothing  # noqa: B018

"""Imports go one way, downwards in the house: a room may import those below it."""

import ast
from pathlib import Path

import pytest

import gammafl

ROOT = Path(gammafl.__file__).parent
FLOORS = ["core", "methods", "config", "federated", "report", "tasks", "runs", "flower", "experiments", "paper", "cli"]
"""From the ground up."""

TENSORS = ROOT / "core/device"
FOR_ALL = {"seeds", "files"}


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


@pytest.mark.parametrize("room", FLOORS)
def test_imports_go_one_way(room: str) -> None:
    allowed = {*FLOORS[: FLOORS.index(room) + 1], *FOR_ALL}
    against = {str(file.relative_to(ROOT)): imports(file) - allowed for file in sorted((ROOT / room).rglob("*.py"))}
    assert not {file: rooms for file, rooms in against.items() if rooms}


def test_files_and_seeds_know_the_core_alone() -> None:
    for file in [*(ROOT / "files").glob("*.py"), ROOT / "seeds.py"]:
        assert imports(file) <= {"core", "files"}, file


def test_every_room_has_a_rule_and_every_file_is_in_a_room() -> None:
    """The rule is the docstring of the room's `__init__`."""
    rooms = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert rooms == {*FLOORS, "files"}
    for path in ROOT.glob("*/__init__.py"):
        assert ast.get_docstring(ast.parse(path.read_text())), path
    assert {path.name for path in ROOT.glob("*.py")} == {"__init__.py", "__main__.py", "seeds.py"}


@pytest.mark.parametrize("room", ["core", "methods", "config", "federated", "files"])
def test_the_lower_rooms_run_without_torch(room: str) -> None:
    """But for what is loaded when somebody gives a tensor on a device: then torch is there."""
    for file in (ROOT / room).rglob("*.py"):
        assert file.parent == TENSORS or "torch" not in roots(file), file


def test_what_needs_torch_is_loaded_when_a_tensor_is_there() -> None:
    """Nothing of the lower rooms imports it when it is loaded itself."""
    need = {file.stem for file in TENSORS.glob("*.py") if "torch" in roots(file, inside=False)}
    assert need == {"crossing", "torch_vectors", "torch_largest", "triton_pass"}
    for room in ("core", "methods", "config", "federated", "files"):
        for file in (ROOT / room).rglob("*.py"):
            named = {module.rpartition(".")[2] for module in modules(file, inside=False) if ".device." in module}
            assert file.stem in need or not named & need, file


def modules(path: Path, inside: bool = True) -> set[str]:
    """The modules that a file imports from; also those that its functions import, if `inside`."""
    tree = ast.parse(path.read_text())
    nodes = list(ast.walk(tree)) if inside else tree.body
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}


def roots(path: Path, inside: bool = True) -> set[str]:
    """The packages that a file imports from."""
    return {module.split(".")[0] for module in modules(path, inside)}


def test_the_package_knows_neither_benchmarks_nor_tests() -> None:
    for file in ROOT.rglob("*.py"):
        assert not roots(file) & {"benchmarks", "tests"}, file


def test_core_knows_neither_torch_nor_files() -> None:
    for file in (ROOT / "core").glob("*.py"):
        assert not roots(file) & {"torch", "pathlib", "io", "safetensors", "pydantic"}, file


def test_every_public_name_can_be_used() -> None:
    for name in gammafl.__all__:
        assert getattr(gammafl, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        gammafl.nothing  # noqa: B018


def test_what_gammafl_raises_has_one_root_and_says_whose_fault_it_is() -> None:
    """A user's mistake, a peer's bytes and numerics are told apart; each is also what Python calls it."""
    kinds = {"InputError": ValueError, "WireError": ValueError, "DivergedError": ArithmeticError}
    for name, kind in kinds.items():
        error = getattr(gammafl, name)
        assert issubclass(error, gammafl.GammaflError)
        assert issubclass(error, kind)
    assert not issubclass(gammafl.WireError, gammafl.InputError)
    assert not issubclass(gammafl.DivergedError, gammafl.InputError)

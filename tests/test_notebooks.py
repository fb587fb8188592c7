"""The notebooks run, and what is committed shows what they show: outputs without errors, and nothing of a machine."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def cells_of(path: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["cells"]
    return cells


def test_the_first_notebook_runs_without_an_error() -> None:
    pytest.importorskip("nbclient")
    path = ROOT / "examples" / "notebooks" / "compressor-and-simulator.ipynb"
    command = [sys.executable, "-m", "tools.notebooks", "--check", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_cell_that_fails_is_told_with_its_error(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    path = tmp_path / "broken.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")]), path)
    before = path.read_bytes()
    done = subprocess.run(
        [sys.executable, "-m", "tools.notebooks", str(path)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert path.read_bytes() == before


def test_what_only_the_first_use_on_a_machine_prints_is_not_stored(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    lines = ["import sys", "print('gammafl: loops are compiled for …', file=sys.stderr)", "print('a result')"]
    path = tmp_path / "first.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("\n".join(lines))]), path)
    subprocess.run([sys.executable, "-m", "tools.notebooks", str(path)], cwd=ROOT, check=True)
    assert ["".join(output["text"]) for output in cells_of(path)[0]["outputs"]] == ["a result\n"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_what_is_committed_has_outputs_and_no_error(path: Path) -> None:
    code = [cell for cell in cells_of(path) if cell["cell_type"] == "code"]
    assert sum(bool(cell["outputs"]) for cell in code) >= 4
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert not [output for cell in code for output in cell["outputs"] if output["output_type"] == "error"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_what_is_committed_has_no_path_and_no_time_of_a_machine(path: Path) -> None:
    for cell in cells_of(path):
        assert not cell["metadata"]
        for output in cell.get("outputs", ()):
            words = [
                output.get("text", ""),
                *(output.get("data", {}).get(kind, "") for kind in ("text/plain", "text/html")),
            ]
            shown = "".join("".join(word) for word in words)
            assert not re.search(r"/(home|root|tmp|work|Users|usr)/|\bat 0x|\d:\d\d:\d\d|\d s\b", shown), shown


def test_there_are_two() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["compressor-and-simulator", "flower"]

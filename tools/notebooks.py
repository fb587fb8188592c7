"""`make notebooks`: runs the notebooks of examples/notebooks and stores their outputs.

python -m tools.notebooks [--check] [NOTEBOOK …]

A cell that fails ends the program with an error. With --check nothing is written. Stored notebooks have no times, no
cell counters and no names of this machine.
"""

import argparse
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

FOLDER = Path(__file__).parents[1] / "examples" / "notebooks"
CELL_SECONDS = 1800
"""The time limit of a cell. It is generous, because the machine may be busy."""
ONCE = "gammafl: loops are compiled"
"""Begins what the first use after an installation prints. It is not stored: it comes once on a machine."""


def executed(path: Path) -> nbformat.NotebookNode:
    """Runs the notebook. Returns it with the new outputs."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(path.parent)}},
    )
    client.execute()
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not output.get("text", "").startswith(ONCE)]
    return notebook


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = sorted(FOLDER.glob("*.ipynb"))
    parser.add_argument("notebooks", nargs="*", type=Path, default=default, help="by default all notebooks")
    parser.add_argument("--check", action="store_true", help="run the notebooks but write nothing")
    given = parser.parse_args()
    for path in given.notebooks:
        try:
            notebook = executed(path)
        except CellExecutionError as error:
            sys.exit(f"{path.name}: {error}")
        if not given.check:
            nbformat.write(notebook, path)
        print(f"{path.name}: {len(notebook.cells)} cells")


if __name__ == "__main__":
    main()

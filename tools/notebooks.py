"""`make notebooks`: runs the notebooks of examples/notebooks, and keeps what they show.

python -m tools.notebooks [--check] [NOTEBOOK …]

With --check nothing is written: a cell that fails ends it with an error. What is kept has no times, no counters of the
session, and no names of this machine.
"""

import argparse
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

FOLDER = Path(__file__).parents[1] / "examples" / "notebooks"
CELL_SECONDS = 1800
"""For a cell, on a machine that does other things as well."""


def executed(path: Path) -> nbformat.NotebookNode:
    """The notebook with new outputs."""
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
    return notebook


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", type=Path, default=sorted(FOLDER.glob("*.ipynb")))
    parser.add_argument("--check", action="store_true")
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

"""The Markdown that generated pages share."""

from collections.abc import Sequence


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table. A | in a cell is escaped, so that it is shown and does not end the cell."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *cells)]
    return "\n".join([*lines, ""])

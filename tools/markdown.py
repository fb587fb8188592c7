"""Markdown that several generated pages have."""

from collections.abc import Sequence


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; a bar in a cell stays a bar."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *cells)]
    return "\n".join([*lines, ""])

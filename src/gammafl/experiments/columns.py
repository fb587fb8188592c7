"""Tables over rows, as data: which cells of the grid are its rows, and what its columns show of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from gammafl.experiments.claims import Place, scale_of
from gammafl.experiments.rows import Rows
from gammafl.federated.units import show_bytes
from gammafl.report.tables import TextTable, best_of


@dataclass(frozen=True)
class Column:
    """A heading, and the text of a cell."""

    heading: str | Callable[[Rows], str]
    show: Callable[[Rows, Place], str]

    def title(self, rows: Rows) -> str:
        return self.heading(rows) if callable(self.heading) else self.heading


@dataclass(frozen=True)
class GridTable:
    """A row for each place of the grid that the factors `by` span and that has runs; `name` is its first column."""

    title: Callable[[Rows], str]
    head: str
    by: Sequence[str]
    name: Callable[[Place], str]
    columns: Sequence[Column]
    note: str = ""

    def __call__(self, rows: Rows) -> TextTable | None:
        places = [cell for cell in rows.cells(*self.by) if rows.pick(**cell)]
        lines = [[self.name(cell), *(column.show(rows, cell) for column in self.columns)] for cell in places]
        headings = [self.head, *(column.title(rows) for column in self.columns)]
        return TextTable(self.title(rows), headings, lines, self.note) if lines else None


def spread(key: str, heading: str | Callable[[Rows], str], scale: float | None = None, digits: int = 2) -> Column:
    """'82.91 ±0.31' over the seeds; by default in points where the metric is accuracy."""

    def show(rows: Rows, cell: Place) -> str:
        factor = scale_of(rows)[0] if scale is None else scale
        return shown([factor * value for value in rows.by_seed(key, **cell).values()], digits)

    return Column(heading, show)


def shown(values: Sequence[float], digits: int = 2) -> str:
    """Mean and, of several, ± standard deviation."""
    if not values:
        return "–"
    text = f"{mean(values):.{digits}f}"
    return text if len(values) == 1 else f"{text} ±{stdev(values):.{digits}f}"


def best() -> Column:
    """The best of all evaluations, with the number of evaluations it was picked from."""
    return spread("best", lambda rows: best_of(row.figures.get("evaluations") for row in rows.finished))


def size(key: str, heading: str) -> Column:
    """Bytes, the mean over the seeds."""

    def show(rows: Rows, cell: Place) -> str:
        values = rows.by_seed(key, **cell).values()
        return show_bytes(mean(values)) if values else "–"

    return Column(heading, show)


def titled(text: str = "", seeds: bool = True) -> Callable[[Rows], str]:
    """'table3: logistic-fmnist, 10 seeds'."""

    def title(rows: Rows) -> str:
        about = [rows.task, *([text] if text else []), *([rows.seeds_in_words()] if seeds else [])]
        return f"{rows.study}: {', '.join(filter(None, about))}"

    return title


def metric_name(rows: Rows, accuracy: str = "accuracy") -> str:
    """What the metric is called at the head of a column."""
    unit = scale_of(rows)[1]
    return accuracy if unit == "points" else unit

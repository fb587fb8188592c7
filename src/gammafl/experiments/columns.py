"""Tables of a study as data: which places of the grid get a line, and what the columns show of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import stdev

from gammafl.experiments.claims import Place
from gammafl.experiments.labels import label
from gammafl.experiments.rows import Rows, Samples
from gammafl.federated.units import show_bytes, show_metric
from gammafl.report.tables import PICKED, SPREAD, TextTable, best_of

Words = str | Callable[[Rows], str]
"""A text, or one that depends on the rows."""


def words(text: Words, rows: Rows) -> str:
    return text(rows) if callable(text) else text


def titled(text: str = "", seeds: bool = True) -> Callable[[Rows], str]:
    """'table3: logistic-fmnist, 10 seeds'."""

    def title(rows: Rows) -> str:
        about = [rows.about, text, rows.seeds_in_words() if seeds else ""]
        return f"{rows.study}: {', '.join(filter(None, about))}"

    return title


@dataclass(frozen=True)
class Column:
    """A heading, the text of a cell, and whether there is such a column at all."""

    heading: Words
    show: Callable[[Rows, Place], str]
    when: Callable[[Rows], bool] = lambda rows: True


@dataclass(frozen=True)
class GridTable:
    """A table with a line for each place of the grid that has runs. The grid is that of the factors `by`.

    `name` makes the first column from a place, and `head` is its heading.
    """

    by: Sequence[str]
    columns: Sequence[Column]
    note: Words = ""
    head: str = ""
    name: Callable[[Place], str] = lambda cell: " ".join(map(label, cell.values()))
    title: Words = titled()  # noqa: RUF009

    def __call__(self, rows: Rows) -> TextTable | None:
        columns = [column for column in self.columns if column.when(rows)]
        places = [cell for cell in rows.cells(*self.by) if rows.pick(**cell)]
        lines = [[self.name(cell), *(column.show(rows, cell) for column in columns)] for cell in places]
        headings = [self.head or ", ".join(self.by), *(words(column.heading, rows) for column in columns)]
        return TextTable(words(self.title, rows), headings, lines, words(self.note, rows)) if lines else None


def mean_of_seeds(key: str, heading: Words, show: Callable[[float], str], **when: Callable[[Rows], bool]) -> Column:
    """A column with the mean of a figure over the seeds; '–' where there is none."""

    def text(rows: Rows, cell: Place) -> str:
        samples = rows.by_seed(key, **cell)
        return show(samples.mean) if samples else "–"

    return Column(heading, text, **when)


def size(key: str, heading: Words, **when: Callable[[Rows], bool]) -> Column:
    """A column of bytes: the mean over the seeds."""
    return mean_of_seeds(key, heading, show_bytes, **when)


def spread(key: str, heading: Words, scale: float | None = None, digits: int = 2) -> Column:
    """A column such as '82.91 ±0.31', over the seeds; by default in per cent if the metric is accuracy."""

    def show(rows: Rows, cell: Place) -> str:
        shown = (rows.scale if scale is None else scale) * rows.by_seed(key, **cell)
        return with_spread(shown, lambda value: f"{value:.{digits}f}", digits)

    return Column(heading, show)


def metric(key: str, heading: Words) -> Column:
    """A column such as '82.91% ±0.31', over the seeds: the metric with its unit."""

    def show(rows: Rows, cell: Place) -> str:
        shown = rows.scale * rows.by_seed(key, **cell)
        return with_spread(shown, lambda value: show_metric(str(rows.figure("metric")), value / rows.scale))

    return Column(heading, show)


def with_spread(samples: Samples, show: Callable[[float], str], digits: int = 2) -> str:
    """The mean, with ± standard deviation if there are several samples."""
    text = show(samples.mean) if samples else "–"
    return text + (f" ±{stdev(samples.values()):.{digits}f}" if len(samples) > 1 else "")


def best(rows: Rows) -> str:
    """The heading of the best evaluation: it says how many evaluations a run has."""
    return best_of(row.figures.get("evaluations") for row in rows.finished if "final" in row.figures)


def metric_name(rows: Rows, accuracy: str = "accuracy") -> str:
    """The name of the metric in a column's heading."""
    return accuracy if rows.unit == "points" else rows.unit


READINGS = (
    spread("last_mean", lambda rows: f"{metric_name(rows, 'accuracy %')}, last"),
    spread("final", "final"),
    spread("best", best),
    spread("averaged", "averaged model"),
)
"""Four results of a run. A paper that prints one number may mean any of them."""
READINGS_NOTE = (
    f"Last is the mean of a run's last evaluations. {PICKED}. Averaged model is the server's average over rounds."
    f" {SPREAD}."
)

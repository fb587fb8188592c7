"""What a study.json must say, so that a page can be made of it: others may have written it."""

from typing import Any, Self

from pydantic import ConfigDict, Field, model_validator

from gammafl.files.reading import Facts

Number = float | None


class Lenient(Facts):
    """A file of a later version may say more; what is NaN was not measured."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=True)


class PartFacts(Lenient):
    label: str
    verdict: str
    mean: Number
    low: Number
    high: Number
    seeds: list[int]
    wanted: str
    unit: str
    paper: Number


class ClaimFacts(Lenient):
    claim: str
    source: str
    verdict: str
    parts: list[PartFacts]


class TableFacts(Lenient):
    title: str
    columns: list[str]
    rows: list[list[str]]
    note: str

    @model_validator(mode="after")
    def _a_cell_a_column(self) -> Self:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError("a row does not have a cell for each column")
        return self


class RunFacts(Facts):
    model_config = ConfigDict(allow_inf_nan=True)

    name: str
    cell: dict[str, str]
    seed: int
    figures: dict[str, Any]
    curve: dict[str, list[float]]


class StudyFacts(Lenient):
    """What `output.to_json` writes."""

    study: str
    title: str
    task: str
    quick: bool
    note: str
    settings: dict[str, Any]
    factors: dict[str, list[str]]
    claims: list[ClaimFacts]
    tables: list[TableFacts]
    diverged: dict[str, str] = Field(default_factory=dict)
    runs: list[RunFacts]
    versions: dict[str, str]

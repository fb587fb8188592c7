"""A claim, and the verdict that our runs give.

A claim has parts. Each part has one number for each seed, and a limit that these must be above or below. The same rule
decides about all claims, and it is here:

    holds                       the 95% interval of every part lies on the right side of its limit. Since all parts must
                                hold, no correction for their number is needed
    does not hold               the mean of some part lies on the wrong side, at the 5% level after Holm's correction
                                for the number of parts, since any of them can refute the claim
    not decided at this noise   everything else. A single seed decides nothing that was measured

The constructors below make the usual claims: `beats`, `close_to`, `sends_less`, `grows_with`, `ratio_is` and
`has_exponent`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from gammafl.experiments.intervals import (
    CONFIDENCE,
    MOST_SEEDS,
    Interval,
    holm,
    interval,
    p_value,
    seeds_to_decide,
    slope,
)
from gammafl.experiments.labels import label
from gammafl.experiments.rows import Key, Rows, Samples, over_all

Answer = Literal["holds", "does not hold", "not decided at this noise"]
HOLDS: Answer = "holds"
FAILS: Answer = "does not hold"
OPEN: Answer = "not decided at this noise"

Place = Mapping[str, str]
"""Factor → level, for some of the factors."""
Side = Literal["above", "below"]
Printed = Callable[[Rows, Place, Place], float | None]
"""The paper's own number for a pair of places."""


@dataclass(frozen=True)
class Part:
    """One place where the claim must be true.

    `samples` is seed → number. `exact` numbers are computed, not measured, so that a single one decides. `paper` is the
    paper's own number, if it prints one.
    """

    label: str
    samples: Mapping[int, float]
    side: Side = "above"
    limit: float = 0.0
    unit: str = ""
    paper: float | None = None
    exact: bool = False

    @property
    def wrong_side(self) -> Side:
        return "below" if self.side == "above" else "above"

    @property
    def values(self) -> list[float]:
        return [self.samples[seed] for seed in sorted(self.samples)]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper (or of ours, where `source` says so) as a question to the rows."""

    sentence: str
    source: str
    parts: Callable[[Rows], Sequence[Part]]
    tasks: tuple[str, ...] = ()
    """The tasks that the claim is about; empty: all tasks."""

    def is_about(self, rows: Rows) -> bool:
        return not self.tasks or rows.task in self.tasks


@dataclass(frozen=True)
class Judged:
    """A part with its interval and its verdict."""

    part: Part
    interval: Interval
    answer: Answer

    def text(self) -> str:
        unit = f" {self.part.unit}" if self.part.unit else ""
        if self.part.exact:
            return f"{self.part.label}: {self.interval.mean:.4g}{unit}"
        if not self.interval.count:
            return f"{self.part.label}: no runs"
        reach = f"[{self.interval.low:+.3g}, {self.interval.high:+.3g}]" if self.interval.count > 1 else "[one seed]"
        paper = "" if self.part.paper is None else f", paper {self.part.paper:+.3g}"
        limit = f", wanted {self.part.side} {self.part.limit:.3g}" if self.part.limit else ""
        return f"{self.part.label}: {self.interval.mean:+.3g} {reach}{unit}{limit}{paper}{self._seeds()}"

    def _seeds(self) -> str:
        """How many seeds would decide an open part, if mean and spread stay as they are.

        Empty if the part alone is decided, and only the correction for all parts leaves it open.
        """
        count = seeds_to_decide(self.part.values, self.part.limit)
        if self.answer != OPEN or self.interval.count < 2 or (count and count <= self.interval.count):
            return ""
        return f", open: {f'about {count}' if count else f'more than {MOST_SEEDS:,}'} seeds would decide"


@dataclass(frozen=True)
class Verdict:
    """A claim with its verdict and its judged parts."""

    claim: Claim
    answer: Answer
    parts: Sequence[Judged]


def judge(claim: Claim, rows: Rows) -> Verdict:
    """The claim's verdict on `rows`."""
    parts = claim.parts(rows)
    corrected = holm([p_value(part.values, part.limit, part.wrong_side) for part in parts])
    judged = [_judge_part(part, p) for part, p in zip(parts, corrected, strict=True)]
    answers = {part.answer for part in judged}
    answer = FAILS if FAILS in answers else HOLDS if answers == {HOLDS} else OPEN
    return Verdict(claim, answer, judged)


def _judge_part(part: Part, corrected: float) -> Judged:
    """`corrected` is Holm's p-value of the test that the mean is on the wrong side."""
    values, sign = part.values, 1 if part.side == "above" else -1
    if part.exact and len(values) == 1:
        right = sign * (values[0] - part.limit) > 0
        return Judged(part, Interval(values[0], values[0], values[0], 1), HOLDS if right else FAILS)
    found = interval(values)
    if sign * ((found.low if sign > 0 else found.high) - part.limit) > 0:
        return Judged(part, found, HOLDS)
    return Judged(part, found, FAILS if corrected < 1 - CONFIDENCE else OPEN)


def verdicts(claims: Sequence[Claim], rows: Rows) -> list[Verdict]:
    """The verdicts on those of `claims` that are about the task of `rows`."""
    return [judge(claim, rows) for claim in claims if claim.is_about(rows)]


def lead(rows: Rows, first: Place, second: Place, key: str = "last_mean") -> Samples:
    """How much better `first` is than `second`, by seed: in points of accuracy, or in perplexity or loss saved."""
    return rows.gain(key) * (rows.by_seed(key, **first) - rows.by_seed(key, **second))


def words_of(place: Place) -> str:
    """', #C=2' for a place at two classes."""
    return "".join(f", {'#C' if factor == 'classes' else factor}={level}" for factor, level in place.items())


def beats(
    sentence: str,
    source: str,
    first: str | Place,
    *others: str | Place,
    by: Sequence[str] = (),
    key: str = "last_mean",
    more_than: float | Callable[[Rows], float] = 0.0,
    paper: Printed = lambda rows, first, second: None,
    name: Callable[[Place, Place], str] | None = None,
    only: Place | None = None,
    tasks: tuple[str, ...] = (),
) -> Claim:
    """`first` is better than each of `others` by `more_than`, at every level of the factors `by`.

    sentence        the claim in words
    source          where the paper makes it, or "ours"
    first, others   methods, or places in the grid
    by              factors; the claim must be true at each of their levels
    key             the figure that is compared; "last_loss" is better when it is lower
    more_than       the least lead, in points of accuracy or in the unit of the figure
    paper           the paper's own difference
    name            makes the label of a part from its two places
    only            restricts the factors `by` to these levels
    tasks           the tasks that the claim is about; empty: all tasks
    """

    def parts(rows: Rows) -> list[Part]:
        unit = "loss" if key == "last_loss" else rows.unit
        limit = more_than(rows) if callable(more_than) else more_than
        made = []
        for other in others:
            for cell, a, b in _pairs(rows, first, other, by, only):
                versus = " − ".join(label(place.get("method", "")) for place in (a, b)) + words_of(cell)
                text = name(a, b) if name else versus
                made.append(Part(text, lead(rows, a, b, key), "above", limit, unit, paper(rows, a, b)))
        return made

    return Claim(sentence, source, parts, tasks)


def _pairs(
    rows: Rows, first: str | Place, second: str | Place, by: Sequence[str], only: Place | None = None
) -> list[tuple[Place, Place, Place]]:
    """For each cell of the factors `by`: the cell, and both places in it. A place that is a word is a method."""
    a, b = ({"method": place} if isinstance(place, str) else place for place in (first, second))
    return [(cell, {**a, **cell}, {**b, **cell}) for cell in (rows.cells(*by, **(only or {})) if by else [{}])]


def close_to(
    sentence: str, source: str, first: str | Place, second: str | Place, within: Mapping[str, float], **how: Any
) -> Claim:
    """`first` loses at most `within` (task → points) to `second`. The other arguments are those of `beats`."""
    return beats(sentence, source, first, second, more_than=lambda rows: -within[rows.task], **how)


def saved(ours: Samples, theirs: Samples) -> Samples:
    """By how many per cent `ours` are less than `theirs`."""
    return (ours / theirs).each(lambda share: 100 * (1 - share))


def sends_less(
    sentence: str,
    source: str,
    first: str,
    second: str,
    by: Sequence[str] = (),
    key: str = "value_bytes_per_client",
    paper: Printed = lambda rows, first, second: None,
) -> Claim:
    """`first` sends less than `second`. The evidence is the saving in per cent."""

    def parts(rows: Rows) -> list[Part]:
        return [
            Part(
                f"sent less by{words_of(cell)}",
                saved(rows.by_seed(key, **a), rows.by_seed(key, **b)),
                unit="%",
                paper=paper(rows, a, b),
            )
            for cell, a, b in _pairs(rows, first, second, by)
        ]

    return Claim(sentence, source, parts)


def grows_with(
    sentence: str, source: str, samples: Callable[[Rows], Mapping[str, Samples]], unit: str, name: str
) -> Claim:
    """The numbers that `samples` returns (level → seed → number) grow from each level to the next."""

    def parts(rows: Rows) -> list[Part]:
        steps = pairwise(samples(rows).items())
        return [Part(name.format(low, high), above - below, unit=unit) for (low, below), (high, above) in steps]

    return Claim(sentence, source, parts)


def ratio_is(
    sentence: str, source: str, ratios: Callable[[Rows], Mapping[str, Samples]], side: Side, limit: float = 1.0
) -> Claim:
    """The ratios that `ratios` returns (part → seed → ratio) are on `side` of `limit`.

    They are judged by their log10, which is nearly normal.
    """

    def parts(rows: Rows) -> list[Part]:
        logs = {name: {seed: math.log10(r) for seed, r in one.items() if r > 0} for name, one in ratios(rows).items()}
        return [Part(f"log10 of {name}", samples, side, math.log10(limit)) for name, samples in logs.items()]

    return Claim(sentence, source, parts)


def exponents(rows: Rows, key: Key, along: str, last: int = 0, **cell: str) -> Samples:
    """Seed → p of `key` ∝ level^p, fitted over the levels of the factor `along`, or over the `last` of them."""
    levels = sorted(rows.levels.get(along, ()), key=float)[-last:]
    return slopes({level: rows.by_seed(key, **cell, **{along: level}) for level in levels})


def slopes(levels: Mapping[str, Samples]) -> Samples:
    """Seed → p of y ∝ level^p, where `levels` is level → seed → y. Seeds with a y of 0 or less are left out."""
    x = [float(level) for level in levels]
    fits = over_all(list(levels.values()), lambda y: slope(x, y) if min(y) > 0 else math.nan) if len(x) > 1 else {}
    return Samples({seed: fit for seed, fit in fits.items() if math.isfinite(fit)})


def has_exponent(
    sentence: str,
    source: str,
    samples: Callable[[Rows], Samples],
    name: str,
    limits: Callable[[Rows], Mapping[Side, float]],
    paper: Callable[[Rows], float | None] = lambda rows: None,
    tasks: tuple[str, ...] = (),
) -> Claim:
    """The exponents that `samples` returns (seed → p) are above and below the limits that `limits` returns."""

    def parts(rows: Rows) -> list[Part]:
        return [Part(name, samples(rows), side, limit, paper=paper(rows)) for side, limit in limits(rows).items()]

    return Claim(sentence, source, parts, tasks)

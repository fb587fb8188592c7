"""A claim of the paper, and what our runs say to it.

A claim yields samples, a number a seed for each of its parts, and the limit that they must be above or below; the
verdict is taken here, in one place and by the same rule for all:

    holds                       every part's 95% interval lies on the right side of its limit
    does not hold               some part's lies on the wrong side, at a confidence corrected for the number of parts
    not decided at this noise   everything else; always with a single seed
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gammafl.experiments.intervals import CONFIDENCE, Interval, interval
from gammafl.experiments.results import Results

Answer = Literal["holds", "does not hold", "not decided at this noise"]
HOLDS: Answer = "holds"
FAILS: Answer = "does not hold"
OPEN: Answer = "not decided at this noise"


@dataclass(frozen=True)
class Part:
    """One place where the claim must be true.

    `samples` is seed → number; `exact` says that it is no measurement, so that one number decides. `paper` is the
    paper's own number, where it prints one.
    """

    label: str
    samples: Mapping[int, float]
    side: Literal["above", "below"] = "above"
    limit: float = 0.0
    unit: str = ""
    paper: float | None = None
    exact: bool = False


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper (or of ours, where `source` says so) as a question to the results."""

    sentence: str
    source: str
    parts: Callable[[Results], Sequence[Part]]
    tasks: tuple[str, ...] = ()
    """Only for these tasks; empty: for all."""


@dataclass(frozen=True)
class Judged:
    part: Part
    found: Interval
    answer: Answer

    def text(self) -> str:
        unit = f" {self.part.unit}" if self.part.unit else ""
        if self.part.exact:
            return f"{self.part.label}: {self.found.mean:.4g}{unit}"
        if not self.found.count:
            return f"{self.part.label}: no runs"
        reach = f"[{self.found.low:+.3g}, {self.found.high:+.3g}]" if self.found.count > 1 else "[one seed]"
        paper = "" if self.part.paper is None else f", paper {self.part.paper:+.3g}"
        limit = f", wanted {self.part.side} {self.part.limit:.3g}" if self.part.limit else ""
        return f"{self.part.label}: {self.found.mean:+.3g} {reach}{unit}{limit}{paper}"


@dataclass(frozen=True)
class Verdict:
    claim: Claim
    answer: Answer
    parts: Sequence[Judged]


def judge(claim: Claim, results: Results) -> Verdict:
    """The claim's verdict on `results`."""
    parts = claim.parts(results)
    judged = [_judge_part(part, len(parts)) for part in parts]
    answers = {part.answer for part in judged}
    answer = FAILS if FAILS in answers else HOLDS if answers == {HOLDS} else OPEN
    return Verdict(claim, answer, judged)


def _judge_part(part: Part, parts: int) -> Judged:
    values = [part.samples[seed] for seed in sorted(part.samples)]
    found = interval(values)
    strict = interval(values, 1 - (1 - CONFIDENCE) / max(1, parts))  # Bonferroni: any one part refutes the claim
    if part.exact and len(values) == 1:
        found = strict = Interval(values[0], values[0], values[0], 1)
    sign = 1 if part.side == "above" else -1
    nearest, farthest = (found.low, strict.high) if sign > 0 else (found.high, strict.low)
    if sign * (nearest - part.limit) > 0:
        return Judged(part, found, HOLDS)
    return Judged(part, found, FAILS if sign * (farthest - part.limit) < 0 else OPEN)

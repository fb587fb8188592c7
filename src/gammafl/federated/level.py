"""The controller: the server's part of a method's level.

At most levels the scale of the threshold is known when a run begins, and stays. At level "run" the server finds it in a
warm-up and steers it, so that uploads keep what was planned on average over the run:

    c = median of λ/shape(t) over the uploads of the warm-up, then after each round c ← c·(spent/left)^0.02

where `spent` is what the round's uploads kept on average, and `left` is what is left of the plan for a round. A larger
exponent oscillates: a small change of λ releases what has gathered just under it.

Where a run has a byte budget (`config/budget.py`), bytes are the target in place of `keep`. At level "run" `spent` and
`left` are bytes of an upload. All other methods, and the warm-up, are told how much to keep (`Moment.keep`):

    keep·d = left / (bytes of an entry in the last round, the median of its uploads)

which corrects itself: `left` is what the budget still has, by the weights of the rounds that are left.

Level "run" would make up for it too late, by a lower λ at the end, which costs accuracy: it releases old residuals.
So there

    c ← c·(spent/due)^0.02·exp(trend)·(weight of this round)/(weight of the next)

`due` is what was planned for an upload of the round, less what was overspent before, spread over a quarter of the
run. `trend` learns how c has to move in every round for uploads to stay at their plan. It grows by 0.01²·ln(spent/due)
a round: that is critical damping where bytes go with 1/λ, as error feedback makes them in the long run, since all that
is computed is sent. The last factor follows for the same reason: λ follows the plan. No upload is longer than four
times what is left for one, which spreads what gathered under λ over some rounds. And in the last tenth of the rounds,
once the run is off its budget by more than 1.5%, uploads are told what to keep.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp, log
from statistics import median
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from gammafl.core.compressors import Thresholding
from gammafl.core.errors import InputError, require
from gammafl.core.layout import Layout
from gammafl.core.levels import RunLevel
from gammafl.core.memory import FLOAT32_MAX
from gammafl.core.method import Method
from gammafl.core.moment import Moment, Schedule
from gammafl.core.sparse import SparseUpdate
from gammafl.federated.allowance import Allowance
from gammafl.federated.client import NO_REPORT, Report
from gammafl.files.reading import Count, Facts, checked

EXPONENT = 0.02
FACTOR = 4.0
"""No upload counts more than so many times the round's median, and no round is thought farther from the plan."""

USUAL = 2.0
"""So many times what is left for an upload count in any case, since in some rounds few clients send most. With 2.5 or
more, one hostile client in five could leave the others less than 1/(1 + 3/5) of the plan (docs/levels.md)."""

TREND = (EXPONENT / 2) ** 2
"""By so much the trend of a run with a byte budget grows, times ln(spent/due)."""

STEEPEST = EXPONENT * log(FACTOR)
"""No trend moves the scale faster than one round that is far from the plan does."""

LANDING, OFF = 0.1, 0.015
"""In this last part of a run uploads are told how much to keep, once the run is off its budget by more than `OFF`.
Every such round costs accuracy, and so does a closer landing."""

Size = Annotated[float, Field(ge=0)]


class Sent(NamedTuple):
    """What the server knows of an upload that counted."""

    kept: float
    """The kept fraction, of the entries that are compressed."""

    report: Report = NO_REPORT
    """What the client says itself."""

    payload_bytes: int = 0

    @classmethod
    def of(cls, update: SparseUpdate, layout: Layout, report: Report, payload: bytes = b"") -> "Sent":
        """Of an upload for a model of this layout."""
        kept = max(0.0, (len(update) - layout.tail) / max(1, layout.dim - layout.tail))
        return cls(kept, report, len(payload))


class Spending(Facts):
    """What a run's budget remembers."""

    bytes: Count = 0
    uploads: Count = 0
    """Of all rounds so far."""

    counted: Size = 0.0
    """The same bytes as level "run" counts them: no client alone can make them many."""

    entry_bytes: Size | None = None
    """Of an entry in the last round that had some."""

    trend: Annotated[float, Field(ge=-STEEPEST, le=STEEPEST)] = 0.0
    """How the logarithm of the scale moves in each round."""

    lands: bool = False
    """Whether what is left of the budget decides how much uploads keep. Then it does so to the end: what gathers under
    λ meanwhile would come at once."""


class LevelState(Facts):
    """What a controller remembers."""

    scale: Size
    rounds: Count = 0
    """How many are closed."""

    spent: Size = 0.0
    """The sum over the rounds of what was kept on average."""

    found: list[Size] = Field(default_factory=list)
    """λ/shape(t) of each upload of the warm-up."""

    spending: Spending | None = None


class Controller:
    """The scale of a method's threshold in a run of so many rounds, for a model of `dim` elements.

    Only uploads that counted, of rounds that are closed, move it. λ is a client's own word, so that it counts by the
    median alone; what was kept is the server's own count.

    >>> from gammafl.methods.registry import resolve
    >>> schedule = Schedule(0.1, iterations=300)
    >>> controller = Controller(resolve("ht:level=run"), 1000, schedule, rounds=300)
    >>> for t in range(1, 21):
    ...     controller.observe(schedule.moment(t), [Sent(0.01, Report(smallest)) for smallest in (0.5, 0.7, 1e30)])
    >>> controller.scale
    0.7
    """

    def __init__(
        self, method: Method, dim: int, schedule: Schedule, rounds: int, allowance: Allowance | None = None
    ) -> None:
        self._level = method.level if isinstance(method.level, RunLevel) else None
        self._compressor, self._rounds, self._allowance = method.compressor, rounds, allowance
        spending = None if allowance is None else Spending()
        self._state = LevelState(scale=method.scale(dim, schedule), spending=spending)

    @property
    def scale(self) -> float:
        """`Moment.scale` of the next round; 0 as long as level "run" has not found it."""
        return self._state.scale

    @property
    def keep(self) -> float | None:
        """`Moment.keep` of the next round, where a run's budget says it; None where the method decides."""
        allowance, spending, left = self._allowance, self._state.spending, self._left_for_an_upload()
        if allowance is None or spending is None or left is None or self._by_threshold:
            return None
        size = allowance.form.dim - allowance.form.whole
        if not size:
            return None
        if spending.entry_bytes is None:
            entries: float = allowance.form.most_entries(left)
        else:
            entries = (left - allowance.form.smallest) / max(spending.entry_bytes, 1 / 8)
        return min(max(entries, 1.0), size) / size

    @property
    def most_bytes(self) -> int | None:
        """What an upload of the next round may take at the most, where its threshold alone would not see to it."""
        left = self._left_for_an_upload()
        if self._allowance is None or left is None or not self._by_threshold:
            return None
        return int(max(FACTOR * left, self._allowance.form.most_bytes(1)))

    @property
    def _by_threshold(self) -> bool:
        """Whether λ decides how much the next uploads keep."""
        lands = self._state.spending is not None and self._state.spending.lands
        return self._level is not None and self.scale > 0 and not lands

    def observe(self, moment: Moment, uploads: Sequence[Sent]) -> None:
        """A round is closed: it ended at `moment`, and these uploads counted."""
        if self._level is None and self._allowance is None:
            return
        state, steered = self._state, {}
        spending, change = self._accounted(uploads)
        if self._level is not None:
            steered = self._steered(self._level, moment, uploads, change)
        self._state = state.model_copy(update={"rounds": state.rounds + 1, "spending": spending, **steered})

    def _steered(self, level: RunLevel, moment: Moment, uploads: Sequence[Sent], by_bytes: float) -> dict[str, Any]:
        """What level "run" remembers of the round: its scale first of all."""
        state, plan = self._state, level.keep
        left = (plan * self._rounds - state.spent) / max(1, self._rounds - state.rounds)
        due = min(max(left, plan / FACTOR), FACTOR * plan)
        spent, found = _spent([upload.kept for upload in uploads], plan, due), list[float]()
        if state.scale > 0:
            change = _ratio(spent, due) ** EXPONENT if self._allowance is None else by_bytes
            scale = state.scale * change if level.steers else state.scale
        else:
            found = [*state.found, *self._found(moment, uploads)]
            scale = median(found) if found and state.rounds + 1 >= level.warmup else 0.0
            found = [] if scale else found
        return {"scale": min(scale, FLOAT32_MAX), "spent": state.spent + spent, "found": found}

    # --- bytes --------------------------------------------------------------------------------------------

    def _left_for_an_upload(self) -> float | None:
        """Bytes; None where there is no budget, or nobody knows how many uploads a round has."""
        allowance, spending = self._allowance, self._state.spending
        if allowance is None or spending is None:
            return None
        expected = spending.uploads / self._state.rounds if spending.uploads else allowance.uploads
        return None if not expected else allowance.left(spending.bytes, self._state.rounds) / expected

    def _accounted(self, uploads: Sequence[Sent]) -> tuple[Spending | None, float]:
        """With what the round took; and how the scale moves by it, in a run with a budget."""
        allowance, before, closed = self._allowance, self._state.spending, self._state.rounds
        if allowance is None or before is None:
            return None, 1.0
        expected = before.uploads / closed if before.uploads else allowance.uploads or max(1, len(uploads))
        due = allowance.due(before.counted, closed) / expected
        mean = _spent([upload.payload_bytes for upload in uploads], due, due)
        ratio = _ratio(mean, due) if due > 0 else 1.0
        trend = before.trend + TREND * log(ratio) if self.scale > 0 else 0.0  # in the warm-up λ does not decide
        trend = min(max(trend, -STEEPEST), STEEPEST)
        form, size = allowance.form, allowance.form.dim - allowance.form.whole
        each = [max(0, one.payload_bytes - form.smallest) / (one.kept * size) for one in uploads if one.kept * size]
        spent, ends = before.bytes + _bytes(uploads), (1 - LANDING) * self._rounds
        off = abs(allowance.unplanned(spent, closed + 1)) > OFF * allowance.total
        spending = Spending(
            bytes=spent,
            uploads=before.uploads + len(uploads),
            counted=before.counted + mean * len(uploads),
            entry_bytes=median(each) if each else before.entry_bytes,
            trend=trend,
            lands=before.lands or (off and closed + 1 >= min(ends, self._rounds - 1)),
        )
        return spending, ratio**EXPONENT * exp(trend) / allowance.change(closed)

    def observe_more(self, uploads: Sequence[Sent]) -> None:
        """These uploads of the round that was closed last counted as well."""
        if (spending := self._state.spending) is not None:
            more = {"bytes": spending.bytes + _bytes(uploads), "uploads": spending.uploads + len(uploads)}
            self._state = self._state.model_copy(update={"spending": spending.model_copy(update=more)})

    def _found(self, moment: Moment, uploads: Sequence[Sent]) -> list[float]:
        """λ/shape(t) of the uploads that tell their λ."""
        assert isinstance(self._compressor, Thresholding)
        shape = self._compressor.threshold(replace(moment, scale=1.0))
        told = [upload.report.smallest for upload in uploads if upload.report.smallest is not None]
        return [min(value / shape, FLOAT32_MAX) for value in told if shape > 0 and value / shape > 0]

    def state(self) -> dict[str, Any] | None:
        """What must outlive the process, as plain values; None where there is nothing to remember."""
        return self._state.model_dump() if self.remembers else None

    @property
    def remembers(self) -> bool:
        """Whether there is anything to steer."""
        return self._level is not None or self._allowance is not None

    def restore(self, saved: Mapping[str, Any] | None) -> None:
        """The controller that `state` was taken of; an `InputError` if that was of another level."""
        if (saved is None) == self.remembers:
            raise InputError("the stored level is of another method")
        if saved is not None:
            try:
                state = checked(LevelState, dict(saved))
                require((state.spending is None) == (self._allowance is None), "it is of another budget")
            except ValueError as error:
                raise InputError(f"the stored level can't be used ({error})") from None
            self._state = state


def _spent(sizes: Sequence[float], plan: float, due: float) -> float:
    """What the uploads of a round took on average, where no client alone can make it large; `due` is what they may."""
    if not sizes:
        return plan
    most = max(USUAL * due, FACTOR * median(sizes))
    return sum(min(one, most) for one in sizes) / len(sizes)


def _bytes(uploads: Sequence[Sent]) -> int:
    return sum(upload.payload_bytes for upload in uploads)


def _ratio(spent: float, due: float) -> float:
    """spent/due; neither is thought more than `FACTOR` times the other."""
    return min(max(spent / due, 1 / FACTOR), FACTOR)

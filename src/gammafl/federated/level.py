"""The controller: the server's part of a method's level.

At most levels, the scale of the threshold is known at the beginning of a run, and does not change. At level "run", the
server finds it in a warm-up and then steers it, so that uploads keep the planned fraction on average over the run:

    c = median of λ/shape(t) over the uploads of the warm-up, then after each round c ← c·(spent/left)^0.02

`spent` is the fraction that the round's uploads kept on average, and `left` is what the plan still has for one round. A
larger exponent oscillates: a small change of λ releases all entries that have gathered just below it.

If a run has a byte budget (`config/budget.py`), bytes are the target instead of `keep`. At level "run", `spent` and
`left` are bytes per upload. All other methods, and the warm-up, are told how much to keep (`Moment.keep`):

    keep·d = left / (bytes per entry in the last round, the median of its uploads)

This corrects itself: `left` is what the budget still has for an upload, by the weights of the remaining rounds.

Level "run" would correct itself too late, by a lower λ at the end of the run. That costs accuracy, since it releases
old residuals. So it uses

    c ← c·(spent/due)^0.02·exp(trend)·(weight of this round)/(weight of the next)

`due` is the plan for an upload of the round, minus earlier overspending, which is spread over a quarter of the run.
`trend` learns how c has to move in every round so that uploads keep to their plan. It grows by 0.01²·ln(spent/due) per
round. That is critical damping if bytes are proportional to 1/λ. With error feedback they are, in the long run, since
all that is computed is sent. The last factor has the same reason: λ follows the plan. No upload is longer than four
times what is left for one, which spreads the entries that gathered below λ over several rounds. In the last tenth of
the rounds, once the run is off its budget by more than 1.5%, uploads are told how much to keep.
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
"""An upload counts at most this many times the round's median. A round's ratio to the plan is cut at this factor."""

USUAL = 2.0
"""An upload always counts up to this many times what is left for one, since in some rounds few clients send most. With
2.5 or more, one hostile client in five could leave the others less than 1/(1 + 3/5) of the plan (docs/levels.md)."""

TREND = (EXPONENT / 2) ** 2
"""How fast the trend of a run with a byte budget grows, as a factor of ln(spent/due)."""

STEEPEST = EXPONENT * log(FACTOR)
"""The largest trend: it moves the scale as fast as one round that is far from the plan."""

LANDING, OFF = 0.1, 0.015
"""In the last LANDING of a run, uploads are told how much to keep, once the run is off its budget by more than OFF.
Each such round costs accuracy; so does a smaller OFF."""

Size = Annotated[float, Field(ge=0)]


class Sent(NamedTuple):
    """What the server knows about an upload that counted."""

    kept: float
    """The kept fraction of the compressed entries."""

    report: Report = NO_REPORT
    """What the client reports about it."""

    payload_bytes: int = 0

    @classmethod
    def of(cls, update: SparseUpdate, layout: Layout, report: Report, payload: bytes = b"") -> "Sent":
        """The facts about an upload for a model with this layout."""
        kept = max(0.0, (len(update) - layout.tail) / max(1, layout.dim - layout.tail))
        return cls(kept, report, len(payload))


class Spending(Facts):
    """The state of a run's budget."""

    bytes: Count = 0
    uploads: Count = 0
    """The uploads of all rounds so far; in the field before, their bytes."""

    counted: Size = 0.0
    """The bytes as level "run" counts them: one client alone can't make them large."""

    entry_bytes: Size | None = None
    """The bytes per entry in the last round with entries."""

    trend: Annotated[float, Field(ge=-STEEPEST, le=STEEPEST)] = 0.0
    """How much the logarithm of the scale moves per round."""

    lands: bool = False
    """Whether the rest of the budget decides how much uploads keep. Once true, it stays true to the end: otherwise all
    entries that gather below λ would be sent at once."""


class LevelState(Facts):
    """The state of a controller."""

    scale: Size
    rounds: Count = 0
    """How many rounds are finished."""

    spent: Size = 0.0
    """The sum over the rounds of the mean kept fraction."""

    found: list[Size] = Field(default_factory=list)
    """λ/shape(t) of each upload of the warm-up."""

    spending: Spending | None = None


class Controller:
    """Steers the scale of a method's threshold, in a run of `rounds` rounds with a model of `dim` elements.

    Only uploads that counted, in finished rounds, move the scale. Clients report λ, so only its median is used; the
    server itself counts what they kept.

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
        """`Moment.scale` of the next round; 0 until level "run" has found it."""
        return self._state.scale

    @property
    def keep(self) -> float | None:
        """`Moment.keep` of the next round if a run's budget sets it; None if the method decides."""
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
        """The most bytes of an upload in the next round; None if the threshold alone is enough."""
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
        """Takes the uploads that counted in a round that ended at `moment`."""
        if self._level is None and self._allowance is None:
            return
        state, steered = self._state, {}
        spending, change = self._accounted(uploads)
        if self._level is not None:
            steered = self._steered(self._level, moment, uploads, change)
        self._state = state.model_copy(update={"rounds": state.rounds + 1, "spending": spending, **steered})

    def _steered(self, level: RunLevel, moment: Moment, uploads: Sequence[Sent], by_bytes: float) -> dict[str, Any]:
        """The state of level "run" after the round, with the new scale."""
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
        """Bytes per upload; None without a budget, or if the number of uploads per round is not known."""
        allowance, spending = self._allowance, self._state.spending
        if allowance is None or spending is None:
            return None
        expected = spending.uploads / self._state.rounds if spending.uploads else allowance.uploads
        return None if not expected else allowance.left(spending.bytes, self._state.rounds) / expected

    def _accounted(self, uploads: Sequence[Sent]) -> tuple[Spending | None, float]:
        """The budget's state after the round, and the factor for the scale."""
        allowance, before, closed = self._allowance, self._state.spending, self._state.rounds
        if allowance is None or before is None:
            return None, 1.0
        expected = before.uploads / closed if before.uploads else allowance.uploads or max(1, len(uploads))
        due = allowance.due(before.counted, closed) / expected
        mean = _spent([upload.payload_bytes for upload in uploads], due, due)
        ratio = _ratio(mean, due) if due > 0 else 1.0
        trend = before.trend + TREND * log(ratio) if self.scale > 0 else 0.0  # in the warm-up, λ decides nothing
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
        """Takes further uploads that counted in the last finished round."""
        if (spending := self._state.spending) is not None:
            more = {"bytes": spending.bytes + _bytes(uploads), "uploads": spending.uploads + len(uploads)}
            self._state = self._state.model_copy(update={"spending": spending.model_copy(update=more)})

    def _found(self, moment: Moment, uploads: Sequence[Sent]) -> list[float]:
        """λ/shape(t) of the uploads that report their λ."""
        assert isinstance(self._compressor, Thresholding)
        shape = self._compressor.threshold(replace(moment, scale=1.0))
        told = [upload.report.smallest for upload in uploads if upload.report.smallest is not None]
        return [min(value / shape, FLOAT32_MAX) for value in told if shape > 0 and value / shape > 0]

    def state(self) -> dict[str, Any] | None:
        """The state to store, as plain values; None if there is none."""
        return self._state.model_dump() if self.remembers else None

    @property
    def remembers(self) -> bool:
        """Whether the controller steers anything, and so has a state."""
        return self._level is not None or self._allowance is not None

    def restore(self, saved: Mapping[str, Any] | None) -> None:
        """Sets the state that `state` returned; an `InputError` if it belongs to another level."""
        if (saved is None) == self.remembers:
            raise InputError("the stored level belongs to another method")
        if saved is not None:
            try:
                state = checked(LevelState, dict(saved))
                require((state.spending is None) == (self._allowance is None), "it belongs to another budget")
            except ValueError as error:
                raise InputError(f"the stored level can't be used ({error})") from None
            self._state = state


def _spent(sizes: Sequence[float], plan: float, due: float) -> float:
    """The mean size of a round's uploads, such that one client alone can't make it large. `due` is the planned size."""
    if not sizes:
        return plan
    most = max(USUAL * due, FACTOR * median(sizes))
    return sum(min(one, most) for one in sizes) / len(sizes)


def _bytes(uploads: Sequence[Sent]) -> int:
    return sum(upload.payload_bytes for upload in uploads)


def _ratio(spent: float, due: float) -> float:
    """spent/due, cut to the range from 1/`FACTOR` to `FACTOR`."""
    return min(max(spent / due, 1 / FACTOR), FACTOR)

"""The controller: the server's part of a method's level.

At most levels the scale of the threshold is known when a run begins, and stays. At level "run" the server finds it in a
warm-up and steers it, so that uploads keep what was planned on average over the run:

    c = median of λ/shape(t) over the uploads of the warm-up, then after each round c ← c·(spent/left)^0.02

where `spent` is what the round's uploads kept on average, and `left` is what is left of the plan for a round. A larger
exponent oscillates: a small change of λ releases what has gathered just under it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from gammafl.core.compressors import Thresholding
from gammafl.core.errors import InputError
from gammafl.core.layout import Layout
from gammafl.core.levels import RunLevel
from gammafl.core.memory import FLOAT32_MAX
from gammafl.core.method import Method
from gammafl.core.moment import Moment, Schedule
from gammafl.core.sparse import SparseUpdate
from gammafl.federated.client import NO_REPORT, Report
from gammafl.files.reading import Count, Facts, checked

EXPONENT = 0.02
FACTOR = 4.0
"""No upload counts more than so many times the plan or the round's median, and no round is thought farther from it."""

Size = Annotated[float, Field(ge=0)]


class Sent(NamedTuple):
    """What the server knows of an upload that counted."""

    kept: float
    """The kept fraction, of the entries that are compressed."""

    report: Report = NO_REPORT
    """What the client says itself."""

    @classmethod
    def of(cls, update: SparseUpdate, layout: Layout, report: Report) -> "Sent":
        """Of an upload for a model of this layout."""
        return cls(max(0.0, (len(update) - layout.tail) / max(1, layout.dim - layout.tail)), report)


class LevelState(Facts):
    """What a controller remembers."""

    scale: Size
    rounds: Count = 0
    """How many are closed."""

    spent: Size = 0.0
    """The sum over the rounds of what was kept on average."""

    found: list[Size] = Field(default_factory=list)
    """λ/shape(t) of each upload of the warm-up."""


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

    def __init__(self, method: Method, dim: int, schedule: Schedule, rounds: int) -> None:
        self._level = method.level if isinstance(method.level, RunLevel) else None
        self._compressor, self._rounds = method.compressor, rounds
        self._state = LevelState(scale=method.scale(dim, schedule))

    @property
    def scale(self) -> float:
        """`Moment.scale` of the next round; 0 as long as level "run" has not found it."""
        return self._state.scale

    def observe(self, moment: Moment, uploads: Sequence[Sent]) -> None:
        """A round is closed: it ended at `moment`, and these uploads counted."""
        if self._level is None:
            return
        state, plan = self._state, self._level.keep
        spent = _spent([upload.kept for upload in uploads], plan)
        if state.scale > 0:
            left = (plan * self._rounds - state.spent) / max(1, self._rounds - state.rounds)
            left = min(max(left, plan / FACTOR), FACTOR * plan)
            scale, found = state.scale * min(max(spent / left, 1 / FACTOR), FACTOR) ** EXPONENT, []
        else:
            found = [*state.found, *self._found(moment, uploads)]
            scale = median(found) if found and state.rounds + 1 >= self._level.warmup else 0.0
            found = [] if scale else found
        scale = min(scale, FLOAT32_MAX)
        self._state = LevelState(scale=scale, rounds=state.rounds + 1, spent=state.spent + spent, found=found)

    def _found(self, moment: Moment, uploads: Sequence[Sent]) -> list[float]:
        """λ/shape(t) of the uploads that tell their λ."""
        assert isinstance(self._compressor, Thresholding)
        shape = self._compressor.threshold(replace(moment, scale=1.0))
        told = [upload.report.smallest for upload in uploads if upload.report.smallest is not None]
        return [min(value / shape, FLOAT32_MAX) for value in told if shape > 0 and value / shape > 0]

    def state(self) -> dict[str, Any] | None:
        """What must outlive the process, as plain values; None where there is nothing to remember."""
        return None if self._level is None else self._state.model_dump()

    def restore(self, saved: Mapping[str, Any] | None) -> None:
        """The controller that `state` was taken of; an `InputError` if that was of another level."""
        if (saved is None) != (self._level is None):
            raise InputError("the stored level is of another method")
        if saved is not None:
            try:
                self._state = checked(LevelState, dict(saved))
            except ValueError as error:
                raise InputError(f"the stored level can't be used ({error})") from None


def _spent(kept: Sequence[float], plan: float) -> float:
    """What the uploads of a round kept on average, where no client alone can make it large."""
    if not kept:
        return plan
    most = FACTOR * max(plan, median(kept))
    return sum(min(one, most) for one in kept) / len(kept)

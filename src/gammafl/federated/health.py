"""Watches a training, and warns once of each problem, with what helps."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Annotated, Any

from pydantic import Field

from gammafl.core.errors import InputError
from gammafl.core.layout import Layout
from gammafl.core.levels import RunLevel
from gammafl.core.method import Method
from gammafl.core.moment import Moment
from gammafl.federated.level import Sent
from gammafl.federated.limits import NO_LIMITS, Limits
from gammafl.files.reading import Count, Facts, checked

OFF = 2.0
"""By which factor the mean kept fraction may differ from the plan."""

FIRST = 8
"""The number of uploads before the kept fraction is judged."""

REPORTS = 16
"""How many reports of sizes are judged together. One client with an update of nearly zero must not cause a warning."""

HELD_BACK = 100.0
"""How many times larger than an update a residual may be; or 2/kept, if that is more."""

Size = Annotated[float, Field(ge=0)]


class HealthState(Facts):
    """The state in a file: what is needed to judge the next rounds."""

    uploads: Count = 0
    kept: Size = 0.0
    planned: Size = 0.0
    """With the field before: sums over the uploads of the kept and the planned fraction."""

    ratios: list[Size] = Field(default_factory=list)
    """The last sizes of residuals, divided by the sizes of the updates."""

    said: list[str] = Field(default_factory=list)
    """The warnings that were given."""


class Health:
    """Watches the uploads of one training.

    method     the clients' method
    layout     the model's layout
    limits     the limits of an upload
    budgeted   whether a run's budget steers the uploads

    >>> from gammafl.methods.registry import resolve
    >>> health = Health(resolve("ht:threshold=0.5"), Layout.flat(100))
    >>> health.look(Moment(), [Sent(0.0), Sent(0.0)])[0]
    'every upload of the round is empty: no entry exceeds the threshold; use level="upload", or a lower threshold'
    >>> health.look(Moment(), [Sent(0.0), Sent(0.0)])
    []
    """

    def __init__(self, method: Method, layout: Layout, limits: Limits = NO_LIMITS, budgeted: bool = False) -> None:
        self._method, self._size = method, max(1, layout.dim - layout.tail)
        self._bytes_decide = budgeted or limits.payload_bytes is not None
        self._most = self._size if limits.entries is None else limits.entries - layout.tail
        self._uploads, self._kept, self._planned = 0, 0.0, 0.0
        self._ratios: list[float] = []
        self._said: list[str] = []

    def look(self, moment: Moment, uploads: Sequence[Sent]) -> list[str]:
        """Looks at the uploads that counted in a round, and returns new warnings."""
        plan = self._method.planned(moment)
        count = 0 if plan is None else max(1, min(round(plan * self._size), self._most))
        self._uploads += len(uploads)
        self._kept += sum(upload.kept for upload in uploads)
        self._planned += len(uploads) * count / self._size
        ratios = _ratios(uploads)
        self._ratios = [*self._ratios, *ratios][-REPORTS:]
        found = {
            "empty": self._empty(plan, uploads),
            "kept": self._off_plan(plan),
            "residual": self._held_back() if ratios else None,
        }
        new = {name: text for name, text in found.items() if text and name not in self._said}
        self._said += new
        return [text for text in new.values() if text]

    def _empty(self, plan: float | None, uploads: Sequence[Sent]) -> str | None:
        if not uploads or any(upload.kept for upload in uploads):
            return None
        if plan is None:
            cure = 'no entry exceeds the threshold; use level="upload", or a lower threshold'
        else:
            cure = "the updates are zero; does the training change the model at all?"
        return f"every upload of the round is empty: {cure}"

    def _off_plan(self, plan: float | None) -> str | None:
        if plan is None or self._bytes_decide or self._uploads < FIRST:
            return None
        kept, planned = self._kept / self._uploads, self._planned / self._uploads
        if planned / OFF <= kept <= OFF * planned:
            return None
        if isinstance(self._method.level, RunLevel):
            cure = 'use level="upload", which keeps the planned fraction in each upload'
        elif kept > planned:
            cure = "clients send more than the method says; give limits"
        else:
            cure = "the other entries are zero; a smaller keep describes what is sent"
        return f"uploads keep {kept:.2%} of the entries on average, but {planned:.2%} are planned: {cure}"

    def _held_back(self) -> str | None:
        if len(self._ratios) < REPORTS or not self._kept:
            return None
        ratio, most = median(self._ratios), max(HELD_BACK, 2 * self._uploads / self._kept)
        if ratio <= most:
            return None
        return (
            f"residuals are {ratio:.0f} times as large as an update, so clients send old values: use a larger keep or a"
            " smaller stepsize"
        )

    def state(self) -> dict[str, Any]:
        """The state to store, as plain values."""
        return {
            "uploads": self._uploads,
            "kept": self._kept,
            "planned": self._planned,
            "ratios": self._ratios,
            "said": list(self._said),
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Sets the state that `state` returned."""
        try:
            state = checked(HealthState, dict(saved))
        except ValueError as error:
            raise InputError(f"the stored state of health can't be used ({error})") from None
        self._uploads, self._kept, self._planned = state.uploads, state.kept, state.planned
        self._ratios, self._said = list(state.ratios), list(state.said)


def _ratios(uploads: Sequence[Sent]) -> list[float]:
    """Size of residual / size of update, for uploads that tell sizes."""
    told = [(upload.report.residual_size, upload.report.update_size) for upload in uploads]
    return [min(residual / update, 1e300) for residual, update in told if residual is not None and update]

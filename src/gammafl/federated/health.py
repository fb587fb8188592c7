"""Watches a training, and says once of each thing that is wrong with it, and what helps."""

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
"""How far, as a factor, the mean of what is kept may be from the plan."""

FIRST = 8
"""Uploads before that is judged."""

REPORTS = 16
"""Reports of sizes that are judged together: one client whose update is nearly zero is no cause for alarm."""

HELD_BACK = 100.0
"""A residual may be so many times an update; where 1/kept is more than half of it, twice 1/kept."""

Size = Annotated[float, Field(ge=0)]


class HealthState(Facts):
    """What must be remembered to judge the next round, as it is stored."""

    uploads: Count = 0
    kept: Size = 0.0
    planned: Size = 0.0
    """Sums over the uploads, as fractions of the entries."""

    ratios: list[Size] = Field(default_factory=list)
    """The last sizes of residuals, in updates."""

    said: list[str] = Field(default_factory=list)
    """Which warnings have been given."""


class Health:
    """Watches the uploads of a method for a model of some layout, within limits.

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
        """A round is closed, and these uploads counted: what there is to say that has not been said."""
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
            cure = 'use level="upload", which keeps what is planned in each upload'
        elif kept > planned:
            cure = "clients send more than the method says; give limits"
        else:
            cure = "the other entries are zero; a smaller keep says what is sent"
        return f"uploads keep {kept:.2%} of the entries on average, where {planned:.2%} are planned: {cure}"

    def _held_back(self) -> str | None:
        if len(self._ratios) < REPORTS or not self._kept:
            return None
        ratio, most = median(self._ratios), max(HELD_BACK, 2 * self._uploads / self._kept)
        if ratio <= most:
            return None
        return (
            f"clients hold back {ratio:.0f} times an update, so that what they send is old: use a larger keep, or a"
            " smaller stepsize"
        )

    def state(self) -> dict[str, Any]:
        """What must outlive the process, as plain values."""
        return {
            "uploads": self._uploads,
            "kept": self._kept,
            "planned": self._planned,
            "ratios": self._ratios,
            "said": list(self._said),
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """The state that `state` was taken of."""
        try:
            state = checked(HealthState, dict(saved))
        except ValueError as error:
            raise InputError(f"the stored state of health can't be used ({error})") from None
        self._uploads, self._kept, self._planned = state.uploads, state.kept, state.planned
        self._ratios, self._said = list(state.ratios), list(state.said)


def _ratios(uploads: Sequence[Sent]) -> list[float]:
    """Residual by update, of the uploads that tell."""
    told = [(upload.report.residual_size, upload.report.update_size) for upload in uploads]
    return [min(residual / update, 1e300) for residual, update in told if residual is not None and update]

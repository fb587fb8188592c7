"""A run's byte budget, spread over its rounds."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from gammafl.config.budget import Budget
from gammafl.core.errors import require
from gammafl.core.lengths import MessageForm
from gammafl.core.moment import Schedule

LEAST = 5 / 8
"""Each round gets at least this part of its plan, even if earlier rounds spent too much. So if one client in five is
hostile, the others can still send. It is 1/(1 + 3/5): what is left for them if a fifth of the clients count four times
as much."""

HORIZON, LEAST_DUE = 1 / 4, 1 / 4
"""If λ decides what is sent, overspending is compensated within HORIZON of the run, and each round gets at least
LEAST_DUE of its plan. A faster compensation needs a λ that moves faster, which costs accuracy. A slower one misses the
budget of runs with a few hundred rounds, since clients send much at the end of the warm-up."""


@dataclass(frozen=True)
class Allowance:
    """A run's bytes, spread over its rounds.

    uploads   the number of uploads per round, if it is known before the first round

    >>> Allowance(1000, weights=(3, 1, 1), form=MessageForm(100)).left(spent=500, closed=1)
    250.0
    """

    total: int
    weights: Sequence[float]
    form: MessageForm
    uploads: int | None = None

    @classmethod
    def of(
        cls, budget: Budget, schedule: Schedule, rounds: int, form: MessageForm, uploads: int | None = None
    ) -> "Allowance | None":
        """The allowance of `budget`; None if the run has no budget of bytes."""
        if budget.run is None:
            return None
        if uploads is not None:
            least = rounds * uploads * form.most_bytes(1)
            few = f"{rounds} rounds of {uploads} uploads take up to {least} bytes with one entry each"
            require(least <= budget.run, f"a run can't keep to {budget.run} bytes: {few}; allow more")
        ends = [schedule.iterations * (number + 1) // rounds for number in range(rounds)]
        weights = {
            "even": lambda: [1.0] * rounds,
            "gamma": lambda: [float(schedule.stepsize(t)) for t in ends],
            "front": lambda: [1.5 - number / max(1, rounds - 1) for number in range(rounds)],
        }[budget.spread]()
        return cls(budget.run, weights, form, uploads)

    def left(self, spent: int, closed: int) -> float:
        """Bytes for the next round, after `closed` rounds that took `spent` bytes."""
        if closed >= len(self.weights):
            return 0.0
        planned = self.total * self.weights[closed] / self._following[0]
        return max((self.total - spent) * self.weights[closed] / self._following[closed], LEAST * planned)

    def due(self, spent: float, closed: int) -> float:
        """Bytes for the next round, if savings and overspending so far are compensated within `HORIZON` of the run."""
        if closed >= len(self.weights):
            return 0.0
        planned = self.total * self.weights[closed] / self._following[0]
        return planned * max(LEAST_DUE, 1 + self.unplanned(spent, closed) / (HORIZON * self.total))

    def change(self, closed: int) -> float:
        """The plan for the round after the next one, divided by the plan for the next one; 1 at the end."""
        return self.weights[closed + 1] / self.weights[closed] if closed + 1 < len(self.weights) else 1.0

    def unplanned(self, spent: float, closed: int) -> float:
        """Bytes that would be left over if all further rounds kept to their plan."""
        return self.total - spent - self.total * sum(self.weights[closed:]) / self._following[0]

    @cached_property
    def _following(self) -> list[float]:
        """The sum of the weights of each round and all later ones."""
        return list(accumulate(reversed(self.weights)))[::-1]

"""A run's byte budget, spread over its rounds."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from gammafl.config.budget import Budget
from gammafl.core.errors import require
from gammafl.core.lengths import MessageForm
from gammafl.core.moment import Schedule


@dataclass(frozen=True)
class Allowance:
    """A run's bytes, spread over its rounds.

    uploads   how many a round has, where that is known before the first one

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
        """None where the run has no budget of bytes."""
        if budget.run is None:
            return None
        if uploads is not None:
            least = rounds * uploads * form.most_bytes(1)
            few = f"{rounds} rounds of {uploads} uploads take up to {least} bytes with one entry each"
            require(least <= budget.run, f"a run can't come to {budget.run} bytes: {few}; allow more")
        ends = [schedule.iterations * (number + 1) // rounds for number in range(rounds)]
        weights = {
            "even": lambda: [1.0] * rounds,
            "gamma": lambda: [float(schedule.stepsize(t)) for t in ends],
            "front": lambda: [1.5 - number / max(1, rounds - 1) for number in range(rounds)],
        }[budget.spread]()
        return cls(budget.run, weights, form, uploads)

    def left(self, spent: int, closed: int) -> float:
        """Bytes for the next round, after so many."""
        if closed >= len(self.weights):
            return 0.0
        return max(0.0, self.total - spent) * self.weights[closed] / self._following[closed]

    def unplanned(self, spent: int, closed: int) -> float:
        """Bytes that would be left over if all further rounds took what was planned for them."""
        return self.total - spent - self.total * sum(self.weights[closed:]) / self._following[0]

    @cached_property
    def _following(self) -> list[float]:
        """The sum of the weights of each round and all later ones."""
        return list(accumulate(reversed(self.weights)))[::-1]

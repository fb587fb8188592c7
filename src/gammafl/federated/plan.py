"""The plan of a run: the task, the method and the numbers that the round loop needs."""

from dataclasses import dataclass
from functools import cached_property

from gammafl.config.budget import NO_BUDGETS, Budgets
from gammafl.config.link_trace import Links
from gammafl.config.optimizers import NoServerOptimizer, ServerOptimizer
from gammafl.config.privacy import Privacy
from gammafl.config.schema import EvaluationSettings, ExponentialAverage, Faults, NoAverage, Sampler, TailAverage
from gammafl.core.aggregate import Weighting
from gammafl.core.errors import require
from gammafl.core.layout import Layout
from gammafl.core.lengths import MessageForm
from gammafl.core.method import Method
from gammafl.core.moment import Moment, Schedule, key_of
from gammafl.core.shares import Shares
from gammafl.core.stepsizes import Stepsize
from gammafl.core.wire import PositionCoding
from gammafl.federated.allowance import Allowance
from gammafl.federated.budget import limits_of, require_clock, require_possible, require_steerable
from gammafl.federated.limits import NO_LIMITS, Limits
from gammafl.federated.privacy import limits_with, require_private
from gammafl.federated.task import Task, layout_of
from gammafl.methods.ways import Way, check_way

TAIL_AVERAGE = TailAverage()
EVALUATION = EvaluationSettings()
NO_FAULTS = Faults()
NO_SERVER_OPTIMIZER = NoServerOptimizer()


@dataclass(frozen=True)
class Plan:
    """The inputs of Algorithm 1, T, E, |S|, γ_t and C, with the seed and the settings for evaluation."""

    task: Task
    method: Method
    stepsize: Stepsize
    iterations: int
    local_steps: int
    participants: int
    seed: int
    weights: Weighting = "paper"
    positions: PositionCoding = "auto"
    averaging: TailAverage | ExponentialAverage | NoAverage = TAIL_AVERAGE
    evaluation: EvaluationSettings = EVALUATION
    faults: Faults = NO_FAULTS
    upload_limits: Limits = NO_LIMITS
    sampler: Sampler = "replacement"
    server_optimizer: ServerOptimizer = NO_SERVER_OPTIMIZER
    downlink: Way = "full"
    link: Links | None = None
    """The links of the virtual clock."""
    budgets: Budgets = NO_BUDGETS
    privacy: Privacy | None = None

    def __post_init__(self) -> None:
        require(
            isinstance(self.iterations, int)
            and min(self.local_steps, self.iterations) >= 1
            and self.iterations % self.local_steps == 0,
            f"iterations ({self.iterations}) must be a positive multiple of local_steps ({self.local_steps})",
        )
        require(
            self.weights == "normalized" or not self.task.statistics,
            "running statistics are averaged, so the weights must sum to 1: use weights='normalized'",
        )
        check_way(self.downlink)
        require(
            1 <= self.participants <= self.clients,
            f"{self.participants} participants per round, but there are {self.clients} clients",
        )
        if self.link is not None:
            self.link.require_clients(self.clients)
        require_clock(self.budgets)
        require_steerable(self.method, self.budgets.all)
        require_private(self.privacy, self.method, self.layout.tail, self.upload_limits, self.budgets.all)
        require(
            self.faults.confirmed or not self.method.memory.commits,
            f"{self.method.name} must know which uploads counted: it can't be run with faults.confirmed=false",
        )
        for limits in (self.limits, *self.own_limits.values()):
            require_possible(self.method, self.layout, limits, self.positions)
        self.allowance  # noqa: B018 - raises an error now if the budget can't be met

    @cached_property
    def layout(self) -> Layout:
        return layout_of(self.task)

    @property
    def dim(self) -> int:
        return self.layout.dim

    @cached_property
    def schedule(self) -> Schedule:
        return Schedule(self.stepsize, self.iterations)

    @cached_property
    def limits(self) -> Limits:
        """The limits for the uploads of all clients."""
        return limits_with(self.privacy, limits_of(self.budgets.all, self.upload_limits))

    @cached_property
    def own_limits(self) -> dict[int, Limits]:
        """Client → its limits, for clients with their own budget."""
        limits = limits_with(self.privacy, self.upload_limits)
        return {client: limits_of(self.budgets.of_client(client), limits) for client in self.budgets.own}

    @cached_property
    def allowance(self) -> Allowance | None:
        """The run's bytes; None without a budget."""
        form = MessageForm.of(self.method, self.layout, self.positions)
        return Allowance.of(self.budgets.all, self.schedule, self.rounds, form, self.participants)

    def moment(self, round_number: int, scale: float, keep: float | None = None) -> Moment:
        """The end of a round, as the method sees it. The level sets `scale`; a budget sets `keep`."""
        step = self.method.step(self.schedule, round_number, self.local_steps, scale)
        return self.schedule.moment((round_number + 1) * self.local_steps, scale, self.layout, keep=keep, step=step)

    def moment_down(self, round_number: int) -> Moment:
        """The beginning of a round, as the downlink's method sees it."""
        key = key_of(self.seed, round_number, self.clients)  # the number of no client
        return self.schedule.moment(round_number * self.local_steps, self._scale_down, self.layout, key)

    @cached_property
    def _scale_down(self) -> float:
        return self.downlink.scale(self.dim, self.schedule) if isinstance(self.downlink, Method) else 1.0

    @cached_property
    def samples(self) -> int:
        """Σ |D^i|."""
        return sum(self.task.client_sizes)

    @cached_property
    def shares(self) -> Shares:
        """p_i of all clients."""
        return Shares(self.task.client_sizes)

    @property
    def clients(self) -> int:
        """n."""
        return len(self.task.client_sizes)

    @property
    def rounds(self) -> int:
        return self.iterations // self.local_steps

"""A strategy around any strategy, Flower's or your own: it receives compressed updates for it."""

import inspect
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any, Literal

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from gammafl.config.budget import Budget
from gammafl.config.privacy import Privacy
from gammafl.core.compressors import Compressor
from gammafl.core.errors import InputError, require
from gammafl.core.method import Method
from gammafl.core.shifts import Shifts
from gammafl.core.stepsizes import Stepsize, as_stepsize
from gammafl.federated import server
from gammafl.federated.budget import require_steerable
from gammafl.federated.callbacks import Callback, Run, Watch
from gammafl.federated.limits import NO_LIMITS, Limits
from gammafl.federated.server_exchange import ONLY_FEDAVG
from gammafl.flower.aggregation import (
    attribute,
    is_flowers,
    is_plain,
    require_strategy,
    require_sums,
    weight_key,
)
from gammafl.flower.arrays import in_float32
from gammafl.flower.checkpoint import Terms as StoredTerms
from gammafl.flower.grid import CompressedGrid, UncompressedGrid
from gammafl.flower.layout import WHOLE
from gammafl.flower.messages import KEY
from gammafl.flower.resumption import Resumption
from gammafl.flower.rounds import Rounds
from gammafl.flower.training import Terms, Training
from gammafl.flower.traps import trap_of
from gammafl.flower.watching import Watching, evaluations_of
from gammafl.flower.wrapping import layers
from gammafl.methods.description import describe
from gammafl.methods.registry import resolve
from gammafl.methods.ways import way_down

LOG = logging.getLogger("flwr")

GOODBYE_SECONDS = 10.0
"""How long the server waits at the end of a training until clients have removed their states."""

SECOND = (
    "a second training would continue from the first one's checkpoint; make another Compressed(…, checkpoint=…) for it,"
    " with a directory of its own"
)
INSIDE = "put Compressed outside: Compressed(Other(FedAvg(…)), …) instead of Other(Compressed(FedAvg(…), …))"


class Compressed(Strategy):
    """Lets `strategy` train with compressed updates. Clients need `gammafl.flower.compress()` as their first mod.

    strategy       any strategy of `flwr.serverapp.strategy`, or your own. It samples nodes and makes the next model. As
                   the reply of a client it gets b − Δ̂ in float32: the model that it sent, minus the decoded update
    method         a method such as gf.top_k(keep=0.01), or a name such as "top-k"
    keep           the kept fraction, for methods given by name
    stepsize       γ_t, a number or a function of t, for methods that follow it. Each round sends it to the clients as
                   `lr_key` of the train config. Unset: the learning rate in the train config, taken as constant
    local_steps    E, the local steps per round: `stepsize` gets t = round · local_steps at the end of a round
    min_accepted   with fewer valid uploads, the model does not change, and clients send their updates again later
    limits         gf.Limits: the largest accepted upload, in bytes, entries and norm
    privacy        differential privacy of clients, for FedAvg: gf.Privacy(clip=…, noise=…). All uploads get the same
                   weight, noise is added to the sum, and `epsilon()` is the privacy loss so far (docs/privacy.md)
    budget         what clients may send: "64 kB/upload" limits each upload, "20 MB/run" the sum of all uploads,
                   "2 kB/s" the rate of one client
    downlink       what the server sends of the model. "full": all of it each time; "changes": what has changed since
                   the version on the client's disk; a method or its name: the compressed difference to the model that
                   clients hold. They train from that model (docs/downlink.md)
    whole          patterns of names of tensors that are sent whole; by default running statistics
    tied           whether tensors that are equal at first count as one tensor (constant ones never do). Set False if
                   they are equal by chance
    replies        what the train function returns: "model", or "update" for the change of the model. Unset: the
                   model, and clients refuse what looks like a change
    arrays         the key of the ArrayRecord that is the model, if the strategy sends several
    accept_whole   whether the whole model of a client without the mod counts
    averaging      "tail" or "exponential" also computes the average of the models, `averaged_arrays`; "none" does not
    ledger         a file that gets a line of JSON per round. It counts the bytes of models and updates in train
                   messages, without Flower's own overhead
    checkpoint     a directory for the server's state. If the ServerApp dies, start it again with the same arguments: it
                   continues, no upload is lost, and none counts twice (docs/reliability.md)
    callbacks      watch the training, and may end it early: [gf.TensorBoard("logs")], or your own (docs/trackers.md)
    stateless      names of the strategy's attributes that the checkpoint omits, since no later round depends on them
    lr_key         the key of the learning rate in the train config
    rounds         the number of rounds, T / E, if the strategy's own `start` has no `num_rounds`
    enabled        False: nothing is compressed, with or without the mod on the clients

    All other attributes are the strategy's: `Compressed(s).fraction_train` is `s.fraction_train`.

    >>> from flwr.serverapp.strategy import FedAdam
    >>> Compressed(FedAdam(), method="top-k", keep=0.001).description
    '{"method": "top-k", "settings": {"keep": 0.001}}'
    """

    def __init__(
        self,
        strategy: Strategy,
        method: str | Method | Compressor = "gamma-fedht",
        *,
        keep: float = 0.01,
        stepsize: Stepsize | float | None = None,
        local_steps: int = 1,
        min_accepted: int = 1,
        limits: Limits = NO_LIMITS,
        privacy: Privacy | None = None,
        budget: str | Budget | None = None,
        downlink: str | Method | Compressor = "full",
        whole: Sequence[str] = WHOLE,
        tied: bool = True,
        replies: Literal["model", "update"] | None = None,
        arrays: str | None = None,
        accept_whole: bool = False,
        averaging: Literal["none", "tail", "exponential"] = "none",
        ledger: str | os.PathLike[str] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        callbacks: Sequence[Callback] = (),
        stateless: Sequence[str] = (),
        lr_key: str = "lr",
        rounds: int | None = None,
        enabled: bool = True,
    ) -> None:
        require_strategy(strategy)
        require(local_steps >= 1, f"local_steps must be at least 1, got {local_steps}")
        require(min_accepted >= 1, f"min_accepted must be at least 1, got {min_accepted}")
        require(replies in (None, "model", "update"), f"replies must be 'model' or 'update', got {replies!r}")
        require(not isinstance(whole, str), f"whole must be a list of patterns, such as [{whole!r}]")
        known = ", ".join(server.AVERAGINGS)
        require(averaging in server.AVERAGINGS, f"averaging must be one of {known}, got {averaging!r}")
        config_key = attribute(strategy, "configrecord_key")
        require(config_key != KEY, f"configrecord_key must not be {KEY!r}, which gammafl uses itself")
        self.strategy = strategy
        self.method = resolve(method, keep=keep)
        self.description = describe(self.method)
        self.stepsize = None if stepsize is None else as_stepsize(stepsize)
        self.local_steps = local_steps
        self.min_accepted = min_accepted
        self.limits = limits
        self.privacy = privacy
        self.budget = Budget.of(budget)
        require_steerable(self.method, self.budget)
        self.downlink = way_down(downlink, keep=keep)
        self.whole = whole
        self.tied = tied
        self.replies = replies
        self.arrays = arrays
        self.accept_whole = accept_whole
        self.averaging = server.AVERAGINGS[averaging]
        self.ledger = None if ledger is None else Path(ledger)
        self.checkpoint = None if checkpoint is None else Path(checkpoint).absolute()
        require(not isinstance(stateless, str), f"stateless must be a list of names, such as [{stateless!r}]")
        self.stateless = stateless
        self.watch = Watch(callbacks)
        self.lr_key = lr_key
        self.rounds = rounds
        self.enabled = enabled
        self.resumption: Resumption | None = None
        self._watching: Watching | None = None
        self._require_half()
        require_sums(self)

    def __getattr__(self, name: str) -> Any:
        if name in ("strategy", "now"):  # not there yet
            raise AttributeError(name)
        return getattr(self.strategy, name)

    # --- a run --------------------------------------------------------------------------------------------

    def start(self, grid: Grid, *args: Any, **kwargs: Any) -> Result:
        """The strategy's own `start`, with the arguments that it takes."""
        if not self.enabled:
            if self.checkpoint is not None:
                LOG.warning("gammafl: nothing is compressed (enabled=False), nothing is stored in %s", self.checkpoint)
            if self.watch:
                LOG.warning("gammafl: nothing is compressed (enabled=False), and callbacks are not called")
            return self.strategy.start(UncompressedGrid(grid), *args, **kwargs)
        given = _arguments(self.strategy.start, grid, *args, **kwargs)
        rounds, initial = given.get("num_rounds", self.rounds), given.get("initial_arrays")
        if not isinstance(rounds, int) or rounds < 1:
            raise InputError("the strategy's start has no num_rounds; give their number: Compressed(…, rounds=…)")
        with self.running(grid, rounds, initial) as compressed:
            begins = self.now.made or initial
            instead: dict[int, Any] = {} if initial is None else {id(initial): in_float32(begins or initial)}
            if callable(evaluate := given.get("evaluate_fn")):
                instead[id(evaluate)] = self._evaluating_what_clients_hold(evaluate)
            others: list[Any] = [instead.get(id(value), value) for value in args]
            named: dict[str, Any] = {name: instead.get(id(value), value) for name, value in kwargs.items()}
            result = self.strategy.start(compressed, *others, **named)
            if self.resumption is not None:
                self.resumption.save()
                self.resumption.complete(result)
        self._finish(grid)
        if self.privacy is not None:
            LOG.info(
                "gammafl: ε = %.3g at δ = %g for each client (docs/privacy.md)", self.epsilon(), self.privacy.delta
            )
        return self._as_it_began(result)

    def _evaluating_what_clients_hold(self, evaluate: Any) -> Any:
        """The app's `evaluate_fn(server_round, arrays)`, called with the model from which clients train."""

        @wraps(evaluate)
        def evaluate_held(server_round: int, arrays: ArrayRecord) -> Any:
            return evaluate(server_round, self.training.as_held(arrays))

        noted = evaluate_held if self.resumption is None else partial(self.resumption.evaluate, evaluate_held)
        return noted if self._watching is None else self._watching.evaluating(noted)

    @contextmanager
    def running(self, grid: Grid, rounds: int, initial: ArrayRecord | None = None) -> Iterator[Grid]:
        """A training, for strategies whose rounds are not run by `start`.

        grid      Flower's grid
        rounds    the number of rounds
        initial   the first model, if it is known

        Gives a grid: the strategy must send and receive with this one. If `aggregate_train` returns a model, the
        uploads of the round counted.
        """
        strategy: Any = self.strategy
        terms = self._terms(rounds, simulated=type(grid).__name__ == "InMemoryGrid")
        now = self.now = Rounds(
            strategy, Training(terms), initial, 0 if self.privacy else self.min_accepted, self.averaging, self.ledger
        )
        LOG.info("gammafl: %s, downlink: %s", self.description, self.downlink)
        with ExitStack() as stack:
            watched: dict[str, Callable[..., Any]]
            if self.checkpoint is None:
                self.resumption, write = None, now.write
                watched = {
                    "aggregate_train": partial(now.aggregate, strategy.aggregate_train),
                    "aggregate_evaluate": partial(now.evaluate, strategy.aggregate_evaluate),
                }
            else:
                require(self.resumption is None, SECOND)
                stored = self.resumption = Resumption(self.checkpoint, strategy, self.stateless)
                stack.enter_context(stored.begun(now, self._stored_terms(rounds), initial))
                watched, write = stored.hooks(strategy), stored.write
            self._watching = None
            if self.watch:
                names = ("configure_train", "configure_evaluate")
                about = self._about(rounds)
                self._watching = Watching(self.watch, now, about, self.resumption)
                watched = self._watching.hooks({name: getattr(strategy, name) for name in names} | watched)
                stack.enter_context(self.watch.of(about))
            attributes = vars(strategy)  # written to directly, as the strategy may be a frozen dataclass
            before = {name: attributes[name] for name in watched if name in attributes}
            attributes.update(watched)
            try:
                yield CompressedGrid(grid, write, now.read)
            finally:
                for name in watched:
                    del attributes[name]
                attributes.update(before)

    def _about(self, rounds: int) -> Run:
        """The facts that callbacks get when the training begins or continues."""
        training = self.now.training
        terms: dict[str, Any] = self._stored_terms(rounds).model_dump()
        return Run(
            task=type(self.strategy).__name__,
            method=self.method.name,
            rounds=rounds,
            local_steps=self.local_steps,
            dim=training.layout.dim if training.begun else None,
            round=training.exchange.round if training.begun else 0,
            directory=self.checkpoint,
            settings={**terms, "stepsize": str(self.stepsize), "budget": str(self.budget), "limits": str(self.limits)},
            evaluations=partial(evaluations_of, self.resumption, self.local_steps),
        )

    def _stored_terms(self, rounds: int) -> StoredTerms:
        down = self.downlink if isinstance(self.downlink, str) else describe(self.downlink)
        return StoredTerms(
            strategy=" of ".join(type(layer).__name__ for layer in layers(self.strategy)),
            method=self.description,
            rounds=rounds,
            local_steps=self.local_steps,
            downlink=down,
            privacy=str(self.privacy),
            whole=list(self.whole),
        )

    def _require_half(self) -> None:
        """Refuses a memory whose server half is one sum over all clients, unless FedAvg adds up the updates."""
        memory = self.method.memory
        alone = isinstance(memory, Shifts) and memory.server_half == "sum"
        sums = is_plain(self.strategy) and not self.accept_whole and self.replies != "update"
        require(sums or not alone, f"{self.method.name} with server='sum' {ONLY_FEDAVG}")

    def _terms(self, rounds: int, simulated: bool) -> Terms:
        return Terms(
            method=self.method,
            rounds=rounds,
            stepsize=self.stepsize,
            local_steps=self.local_steps,
            lr_key=self.lr_key,
            limits=self.limits,
            privacy=self.privacy,
            budget=self.budget,
            downlink=self.downlink,
            whole=self.whole,
            tied=self.tied,
            replies=self.replies,
            accept_whole=self.accept_whole,
            arrays_key=self.arrays or attribute(self.strategy, "arrayrecord_key"),
            weight_key=weight_key(self.strategy),
            alike=is_flowers(self.strategy),
            plain=is_plain(self.strategy),
            trap=trap_of(self.strategy),
            simulated=simulated,
            resumes=self.checkpoint is not None,
        )

    @property
    def training(self) -> Training:
        """The facts and the state of the current or last training."""
        return self.now.training

    @property
    def history(self) -> list[dict[str, Any]]:
        """One record for each round of the current or last training."""
        return self.now.history

    @property
    def stopped(self) -> str | None:
        """The reason for which a callback ended the training early; None if none did."""
        return self.watch.stopped

    def epsilon(self) -> float | None:
        """ε at δ = `privacy.delta`, for a client that was asked in every round so far; None without privacy."""
        if self.training.begun:
            return self.training.exchange.epsilon()
        return None if self.privacy is None else self.privacy.epsilon(rounds=0)

    @property
    def averaged_arrays(self) -> ArrayRecord | None:
        """The averaged model; None if there is none yet."""
        return self.now.averaged_arrays

    @property
    def server_arrays(self) -> ArrayRecord | None:
        """The strategy's own model, if clients hold another one; else None. The result of `start` is the clients'."""
        training = self.training
        return training.as_it_began(training.last.record) if training.has_view and training.last else None

    def _finish(self, grid: Grid) -> None:
        """Tells clients to remove their states, and raises an error if no upload ever counted.

        If a callback stopped a training that can continue, clients keep their states.
        """
        may_go_on = self.stopped is not None and self.checkpoint is not None
        try:
            if not may_go_on and (messages := self.now.goodbyes(set(grid.get_node_ids()), GOODBYE_SECONDS)):
                list(grid.send_and_receive(messages, timeout=GOODBYE_SECONDS))
        except Exception as error:  # the model is worth more than the clients' disks
            LOG.warning("gammafl: the clients could not be told that the training is over: %r", error)
        if self.history and not any(record["clients"] or record.get("whole") for record in self.history):
            reasons = sorted({reason for record in self.history for reason in record["refused"].values()})
            ours_first = sorted(self.now.failures, key=lambda said: (not said.startswith("gammafl: "), said))
            failed = "every client failed" + (f": {ours_first[0]}" if ours_first else "; see their logs")
            why = reasons[0] if reasons else failed
            nothing = f"no upload counted in {len(self.history)} rounds, so that nothing was learned: {why}"
            require(self.privacy is not None, nothing)  # with privacy, an error would tell who answered
            LOG.warning("gammafl: %s", nothing)

    def _as_it_began(self, result: Any) -> Any:
        """The result, with the model that clients hold, in the types of the app's first model."""
        arrays, training = getattr(result, "arrays", None), self.training
        if isinstance(arrays, ArrayRecord) and training.begun and arrays.keys() <= set(training.layout.names):
            result.arrays = training.as_it_began(training.as_held(arrays))
        return result

    # --- what only `start` may call -----------------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        raise InputError(INSIDE)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        raise InputError(INSIDE)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        raise InputError(INSIDE)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        raise InputError(INSIDE)

    def summary(self) -> None:
        self.strategy.summary()
        LOG.info("\t└──> gammafl: %s", self.description)


def _arguments(function: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Name → argument of a call of `function`, with defaults."""
    call = inspect.signature(function).bind(*args, **kwargs)
    call.apply_defaults()
    return {**call.arguments, **kwargs}

"""What others see of a run while it goes on: one protocol, the same in the simulator and over Flower.

    on_start        once, before the first round of this process
    on_round        after each round, when the server has its new model
    on_evaluation   after each evaluation
    on_end          once: the run is over, was stopped, or failed

A callback changes no result. It may end the run early: what `on_start`, `on_round` or `on_evaluation` returns is the
reason; an empty text is none. Values that cost time are computed when a callback asks for them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gammafl.core.compressors import Thresholding, TopK
from gammafl.core.errors import InputError
from gammafl.core.method import Method
from gammafl.core.moment import Moment
from gammafl.core.sparse import SparseUpdate
from gammafl.federated.records import Summary

Tensors = dict[str, NDArray[Any]]
Reason = str | None
"""Why a run ends early; None: it goes on."""

FEW = 12
"""Up to so many clients, `scalars` has values of each."""


def _no_model() -> Tensors:
    raise InputError("there is no model yet")


@dataclass(frozen=True)
class Evaluated:
    """How good the model is.

    values      name → number, such as {"accuracy": 0.81, "loss": 0.62}; also those of the averaged model, and of the
                server's own where clients hold another one, as "averaged accuracy" and "server accuracy"
    by          who evaluated: the "server", or over Flower also the "clients", averaged by the strategy
    """

    round: int
    iteration: int
    values: Mapping[str, float]
    by: str = "server"
    make_model: Callable[[], Tensors] = field(default=_no_model, repr=False)

    def model(self) -> Tensors:
        """A copy of the tensors of the model that was evaluated, by name."""
        return self.make_model()

    def scalars(self) -> dict[str, float]:
        """What a tracker shows: `values`, under "evaluation/" or "clients' evaluation/".

        >>> Evaluated(20, 100, {"accuracy": 0.8}).scalars()
        {'evaluation/accuracy': 0.8}
        """
        group = "evaluation" if self.by == "server" else f"{self.by}' evaluation"
        return {f"{group}/{name}": value for name, value in self.values.items()}


@dataclass(frozen=True)
class Run:
    """What is known when a run begins, or goes on.

    round         the last round that is done: 0, or where a resumed run goes on
    directory     where the run keeps its files: `out` of the simulator, `checkpoint` over Flower
    settings      the configuration as plain values, tables spelled out
    evaluations   gives the evaluations of the rounds that are done
    """

    task: str
    method: str
    rounds: int
    local_steps: int
    seed: int | None = None
    clients: int | None = None
    dim: int | None = None
    metric: str | None = None
    """What `Summary.final` is; over Flower the app knows alone."""

    higher_is_better: bool | None = None
    round: int = 0
    directory: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    evaluations: Callable[[], Sequence[Evaluated]] = field(default=list, repr=False)


@dataclass(frozen=True)
class Upload:
    """What one client sent in a round: an upload that counted."""

    uplink_bytes: int
    update: SparseUpdate = field(repr=False)
    train_loss: float | None = None

    @property
    def kept_fraction(self) -> float:
        """Of all entries of the model."""
        return len(self.update) / self.update.dim


@dataclass(frozen=True)
class Round:
    """What happened in a round. Sizes are in bytes, and of uploads that counted.

    uploads          client → its upload, if it counted
    total_*          from the beginning of the run
    evaluation       where the round ended with one; over Flower evaluations come later, and this is None
    metrics          over Flower: what the strategy made of the clients' metrics
    """

    run: Run
    round: int
    iteration: int
    asked: int
    uploads: Mapping[str, Upload]
    kept: int
    uplink_bytes: int
    downlink_bytes: int
    total_uplink_bytes: int
    total_downlink_bytes: int
    total_kept_fraction: float
    refused: Mapping[str, str] = field(default_factory=dict)
    capped: int = 0
    train_loss: float | None = None
    stepsize: float | None = None
    """γ_t at the end of the round; None where nobody told."""

    link_seconds: float | None = None
    """On the virtual clock since the run began."""

    warnings: Sequence[str] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    evaluation: Evaluated | None = None
    method: Method | None = field(default=None, repr=False)
    moment: Moment | None = field(default=None, repr=False)
    make_model: Callable[[], Tensors] = field(default=_no_model, repr=False)
    residual_of: Callable[[str], NDArray[np.float32]] | None = field(default=None, repr=False)

    @property
    def kept_fraction(self) -> float | None:
        """Of the entries of an upload, on average; None if none counted."""
        return fmean(upload.kept_fraction for upload in self.uploads.values()) if self.uploads else None

    @cached_property
    def threshold(self) -> float | None:
        """λ_t, for methods that have one.

        At level "upload" it is not known before: then the smallest magnitude that an upload keeps, their median.
        """
        if self.method is None or self.moment is None or not isinstance(self.method.compressor, Thresholding | TopK):
            return None
        compressor, level = self.method.compressor, self.method.level
        told = self.moment if level is None else level.told(self.moment)
        if isinstance(compressor, Thresholding) and told.keep is None and told.scale > 0:
            return compressor.threshold(told)
        tail = 0 if self.moment.layout is None else self.moment.layout.tail
        compressed = [upload.update.split(tail)[0] for upload in self.uploads.values()]
        kept = [float(np.abs(update.values).min()) for update in compressed if len(update)]
        return median(kept) if kept else None

    def residual_norm(self, client: str | None = None) -> float | None:
        """‖e‖ of what a client has not sent yet; without a name, the mean over the clients of the round.

        It takes a look at the whole of each residual. Over Flower only the clients know it: None.
        """
        if self.residual_of is None or not self.uploads:
            return None
        names = self.uploads if client is None else [client]
        return fmean(float(np.linalg.norm(self.residual_of(name))) for name in names)

    def model(self) -> Tensors:
        """A copy of the tensors of the model by name, as clients hold it when the next round begins.

        The model goes on changing: ask while the callback is called.
        """
        return self.make_model()

    def scalars(self) -> dict[str, float]:
        """What a tracker shows of the round, in groups: "round/…", "total/…", and with few clients "client 3/…".

        The residuals' norm is among them in rounds with an evaluation, since it takes time.
        """
        known = {
            "round/train loss": self.train_loss,
            "round/uplink bytes": self.uplink_bytes,
            "round/downlink bytes": self.downlink_bytes,
            "round/kept fraction": self.kept_fraction,
            "round/uploads": len(self.uploads),
            "round/refused": len(self.refused),
            "round/threshold": self.threshold,
            "round/stepsize": self.stepsize,
            "round/residual norm": self.residual_norm() if self.evaluation is not None else None,
            "total/uplink bytes": self.total_uplink_bytes,
            "total/downlink bytes": self.total_downlink_bytes,
            "total/kept fraction": self.total_kept_fraction,
            "total/link seconds": self.link_seconds,
            **{f"round/{name}": value for name, value in self.metrics.items()},
        }
        if (self.run.clients or self.asked) <= FEW:
            for name, upload in self.uploads.items():
                known[f"client {name}/uplink bytes"] = upload.uplink_bytes
                known[f"client {name}/kept fraction"] = upload.kept_fraction
                known[f"client {name}/train loss"] = upload.train_loss
        return {name: float(value) for name, value in known.items() if value is not None}


@dataclass(frozen=True)
class Ended:
    """How a run ended.

    round     the last round that is done
    stopped   the reason that a callback gave
    error     what ended the run, if it failed; an interruption by the user too
    summary   of a run of the simulator that did not fail
    """

    run: Run
    round: int
    stopped: Reason = None
    error: BaseException | None = None
    summary: Summary | None = None


class Callback:
    """Derive from it, and write the methods that you need; those here do nothing.

    >>> class Kept(Callback):
    ...     def on_round(self, round: Round) -> Reason:
    ...         return "more than half is kept" if (round.kept_fraction or 0) > 0.5 else None
    >>> Kept().on_end(Ended(Run("mine", "top-k", rounds=10, local_steps=5), round=10))
    """

    def on_start(self, run: Run) -> Reason:
        """Before the first round of this process."""
        return None

    def on_round(self, round: Round) -> Reason:
        """After a round, and before its evaluation is told."""
        return None

    def on_evaluation(self, evaluation: Evaluated) -> Reason:
        """After an evaluation. Over Flower also before the first round, as round 0."""
        return None

    def on_end(self, end: Ended) -> None:
        """The run is over for this process, also if it failed. Not called when the process is killed."""


class Watch:
    """Tells callbacks of a run, in their order; `stopped` is the first reason that one of them gave."""

    def __init__(self, callbacks: Sequence[Callback] = ()) -> None:
        if isinstance(callbacks, Callback) or not all(isinstance(one, Callback) for one in callbacks):
            raise InputError(f"callbacks must be a list of gf.Callback, got {callbacks!r:.80}")
        self.callbacks = list(callbacks)
        self.stopped: Reason = None
        self.round = 0
        self.summary: Summary | None = None
        """For `on_end`."""

    def __bool__(self) -> bool:
        """Whether anybody watches: else there is nothing to prepare."""
        return bool(self.callbacks)

    @contextmanager
    def of(self, run: Run) -> Iterator[None]:
        """From `on_start` to `on_end`, which every callback gets that has begun."""
        self.stopped, self.round, self.summary = None, run.round, None
        begun: list[Callback] = []
        error: BaseException | None = None
        try:
            for callback in self.callbacks:
                self._take(callback, callback.on_start(run))
                begun.append(callback)
            yield
        except BaseException as caught:
            error = caught
            raise
        finally:
            self._end(begun, Ended(run, self.round, self.stopped, error, self.summary))

    def _end(self, begun: Sequence[Callback], end: Ended) -> None:
        failed: list[Exception] = []
        for callback in begun:
            try:
                callback.on_end(end)
            except Exception as error:  # the others hear of the end all the same
                failed.append(error)
        if not failed:
            return
        if end.error is None:
            raise failed[0]
        for one in failed:  # what ended the run is told first
            end.error.add_note(f"a callback's on_end failed as well: {one!r}")

    def tell_round(self, round: Round) -> None:
        """A round is done, perhaps with its evaluation."""
        self.round = round.round
        for callback in self.callbacks:
            self._take(callback, callback.on_round(round))
        if round.evaluation is not None:
            self.tell_evaluation(round.evaluation)

    def tell_evaluation(self, evaluation: Evaluated) -> None:
        for callback in self.callbacks:
            self._take(callback, callback.on_evaluation(evaluation))

    def _take(self, callback: Callback, reason: Any) -> None:
        if not isinstance(reason, Reason):
            name = type(callback).__name__
            raise InputError(f"a method of {name} returned {reason!r:.40}; to end the run, return the reason in words")
        self.stopped = self.stopped or reason or None

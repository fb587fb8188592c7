"""What callbacks see of a run of the simulator: it is made from the plan, the state and the records."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from gammafl.core.arrays import Vector
from gammafl.core.layout import Layout
from gammafl.federated.callbacks import Evaluated, Round, Run, Tensors, Upload
from gammafl.federated.plan import Plan
from gammafl.federated.records import RoundRecord
from gammafl.federated.residuals import ResidualStore
from gammafl.federated.server import ServerState


def round_of(run: Run, plan: Plan, state: ServerState, residuals: ResidualStore, record: RoundRecord) -> Round:
    """The last round that was closed, as callbacks see it."""
    closed, totals = state.closed, state.totals
    assert closed is not None, "a round is closed"
    model = partial(_copy, state.held, plan.layout)
    return Round(
        run=run,
        round=record.round,
        iteration=record.iteration,
        asked=len(record.participants),
        uploads={str(one.client): Upload(len(one.payload), update, one.loss) for one, update in closed.accepted},
        kept=record.kept,
        uplink_bytes=record.uplink_bytes,
        downlink_bytes=record.downlink_bytes,
        total_uplink_bytes=totals.uplink_bytes,
        total_downlink_bytes=totals.downlink_bytes,
        total_kept_fraction=totals.kept / max(1, totals.uploads * plan.dim),
        refused=dict(record.refused),
        capped=record.capped,
        train_loss=record.train_loss,
        stepsize=closed.moment.gamma,
        link_seconds=record.link_seconds,
        warnings=tuple(record.warnings),
        evaluation=evaluation_of(record, plan.task.metric, model) if record.evaluated else None,
        method=plan.method,
        moment=closed.moment,
        make_model=model,
        residual_of=(lambda name: _to_look_at(residuals.residual(int(name)))) if plan.method.leaves_a_rest else None,
    )


def _to_look_at(vector: Vector) -> Vector:
    """The same numbers, which can't be changed: a residual is what its client sends next."""
    view = vector.view()
    view.flags.writeable = False
    return view


def _copy(vector: Vector, layout: Layout) -> Tensors:
    return layout.split(vector.copy())


def evaluations_of(records: Callable[[], Sequence[RoundRecord]], metric: str) -> list[Evaluated]:
    """The evaluations of earlier rounds. They have no models, because these are not kept."""
    return [evaluation_of(record, metric) for record in records() if record.evaluated]


def evaluation_of(record: RoundRecord, metric: str, model: Callable[[], Tensors] | None = None) -> Evaluated:
    """The evaluation that `record` ends with."""
    evaluated = Evaluated(record.round, record.iteration, dict(_values(record, metric)))
    return evaluated if model is None else replace(evaluated, make_model=model)


def _values(record: RoundRecord, metric: str) -> Iterator[tuple[str, float]]:
    """The figures of an evaluation by name, the metric first. If the metric is the loss, it is there only once."""
    kinds = {
        "": (record.metric, record.loss, record.metrics),
        "averaged ": (record.averaged_metric, record.averaged_loss, record.averaged_metrics),
        "server ": (record.server_metric, record.server_loss, {}),
    }
    for prefix, (value, loss, others) in kinds.items():
        named = {metric: value, "loss": loss, **others}
        yield from ((prefix + name, number) for name, number in named.items() if number is not None)
    if record.view_distance is not None:
        yield "view distance", record.view_distance

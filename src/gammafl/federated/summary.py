"""Makes the summary of a run from its records."""

from collections.abc import Mapping, Sequence

from gammafl.core.errors import InputError, require
from gammafl.federated.plan import Plan
from gammafl.federated.records import RoundRecord, Summary
from gammafl.federated.server import Totals


def summarise(
    plan: Plan,
    totals: Totals,
    records: Sequence[RoundRecord],
    wall_seconds: float,
    *,
    task: str | None = None,
    method: str | None = None,
    phase_seconds: Mapping[str, float] | None = None,
    peak_memory_bytes: int = 0,
    stopped: str | None = None,
) -> Summary:
    """The summary of a run. Its last record must have an evaluation.

    task, method   the names to show; by default, their own
    stopped        why the run ended early
    """
    _require_uploads(totals, records)
    evaluated = {record.round: record.metric for record in records if record.metric is not None}
    require(bool(evaluated), "a summary needs at least one evaluation")
    metrics = list(evaluated.values())
    in_tail = [metric for number, metric in evaluated.items() if plan.evaluation.in_tail(number, plan.rounds)]
    whole = totals.uploads * plan.layout.tail  # running statistics, which are sent whole
    sparse = totals.kept - whole
    tail = (in_tail or metrics)[-plan.evaluation.last :]
    last = records[-1]
    assert last.loss is not None, "the last record has an evaluation"
    best = max if plan.task.higher_is_better else min
    return Summary(
        task=plan.task.name if task is None else task,
        method=str(plan.method) if method is None else method,
        seed=plan.seed,
        dim=plan.dim,
        iterations=last.iteration,
        rounds=last.round,
        clients=plan.clients,
        participants=plan.participants,
        metric=plan.task.metric,
        higher_is_better=plan.task.higher_is_better,
        final=metrics[-1],
        last_mean=sum(tail) / len(tail),
        last_count=len(tail),
        best=best(metrics),
        evaluations=len(metrics),
        stopped=stopped,
        planned_rounds=None if stopped is None else plan.rounds,
        averaged=last.averaged_metric,
        metrics=last.metrics,
        averaged_metrics=last.averaged_metrics,
        server=last.server_metric,
        final_loss=last.loss,
        averaged_loss=last.averaged_loss,
        kept_fraction=totals.kept / (totals.uploads * plan.dim),
        kept_per_upload=sparse / totals.uploads,
        uplink_bytes=totals.uplink_bytes,
        uplink_bytes_per_client=totals.uplink_bytes / plan.participants,
        downlink_bytes=totals.downlink_bytes,
        downlink_bytes_per_client=totals.downlink_bytes / plan.participants,
        link_seconds=totals.link_seconds,
        value_bytes_per_client=(sparse * plan.method.values.paper_bits + 32 * whole) / 8 / plan.participants,
        dense_bytes_per_client=4 * plan.dim * last.round,
        epsilon=None if plan.privacy is None else plan.privacy.epsilon(last.round),
        delta=None if plan.privacy is None else plan.privacy.delta,
        refused_uploads=sum(len(record.refused) for record in records),
        missing_uploads=sum(record.missing for record in records),
        wall_seconds=wall_seconds,
        peak_memory_bytes=peak_memory_bytes,
        **{f"{phase}_seconds": seconds for phase, seconds in (phase_seconds or {}).items()},
    )


def _require_uploads(totals: Totals, records: Sequence[RoundRecord]) -> None:
    """Raises an error if no upload of the run ever counted."""
    if totals.uploads or not records:
        return
    reasons = [reason for record in records for reason in record.refused.values()]
    why = f"all were refused, the last because {reasons[-1]}" if reasons else "none arrived"
    raise InputError(f"no upload counted in {len(records)} rounds, so that nothing was learned: {why}")

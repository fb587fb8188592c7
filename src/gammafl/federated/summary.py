"""What a run comes to, from its records: the keys of summary.json."""

from collections.abc import Sequence
from typing import Any

from gammafl.core.errors import require
from gammafl.federated.plan import Plan
from gammafl.federated.rounds import Record
from gammafl.federated.server import Totals


def summarise(plan: Plan, totals: Totals, records: Sequence[Record], wall_seconds: float) -> dict[str, Any]:
    """Sizes are in bytes; `*_per_client` is what a client sends that takes part in every round.

    `value_bytes_per_client` counts the kept values and no positions, as the paper's tables do; all other
    sizes are of the messages as they were sent. `best` is picked from `evaluations` looks at the test set.
    """
    evaluated = [record for record in records if "metric" in record]
    require(bool(evaluated), "a summary needs at least one evaluation")
    metrics = [record["metric"] for record in evaluated]
    in_tail = [r["metric"] for r in evaluated if plan.evaluation.in_tail(r["round"], plan.rounds)]
    whole = totals.uploads * plan.layout.tail  # running statistics, which are sent as they are
    sparse = totals.kept - whole
    tail = (in_tail or metrics)[-plan.evaluation.last :]
    last = records[-1]
    best = max if plan.task.higher_is_better else min
    return {
        "dim": plan.dim,
        "iterations": plan.iterations,
        "rounds": plan.rounds,
        "clients": plan.clients,
        "participants": plan.participants,
        "metric": plan.task.metric,
        "final": metrics[-1],
        "last_mean": sum(tail) / len(tail),
        "last_count": len(tail),
        "best": best(metrics),
        "evaluations": len(metrics),
        "averaged": last.get("averaged_metric"),
        "final_loss": last["loss"],
        "averaged_loss": last.get("averaged_loss"),
        "kept_fraction": totals.kept / max(1, totals.uploads * plan.dim),
        "kept_per_upload": sparse / max(1, totals.uploads),
        "uplink_bytes": totals.uplink_bytes,
        "uplink_bytes_per_client": totals.uplink_bytes / plan.participants,
        "value_bytes_per_client": (sparse * plan.method.values.paper_bits + 32 * whole) / 8 / plan.participants,
        "dense_bytes_per_client": 4 * plan.dim * plan.rounds,
        "refused_uploads": sum(len(record.get("refused", ())) for record in records),
        "missing_uploads": sum(record.get("missing", 0) for record in records),
        "wall_seconds": wall_seconds,
    }

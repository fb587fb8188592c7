"""The picture of one run: its metric against iterations and against what clients sent."""

from collections.abc import Sequence
from itertools import accumulate

from gammafl.federated.records import RoundRecord, Summary
from gammafl.report.charts import Chart
from gammafl.report.lines import Axis, Line, lines_panel

ITERATIONS = Axis("iteration", "iterations", button="iterations")
SENT = Axis("sent_bytes", "sent so far by all clients (bytes)", button="bytes sent")


def run_chart(summary: Summary, records: Sequence[RoundRecord]) -> Chart:
    """A chart with a panel for each axis. The averaged model has its own line."""
    sent = list(accumulate(record.uplink_bytes for record in records))
    shown = [(record, size) for record, size in zip(records, sent, strict=True) if record.metric is not None]
    lines = [
        _line("model", [(record.iteration, size, record.metric) for record, size in shown]),
        _line("averaged model", [(record.iteration, size, record.averaged_metric) for record, size in shown]),
    ]
    lines = [line for line in lines if line.values["metric"]]
    per_cent = summary.metric == "accuracy"
    up = Axis("metric", f"test {summary.metric}{' (%)' if per_cent else ''}", scale=100.0 if per_cent else 1.0)
    panels = [lines_panel(f"against {axis.button}", lines, [axis], [up]) for axis in (ITERATIONS, SENT)]
    title = f"{summary.method} on {summary.task}: {summary.iterations:,} iterations, seed {summary.seed}"
    return Chart("run", title, panels)


def _line(name: str, points: Sequence[tuple[int, int, float | None]]) -> Line:
    """A line through the points that have a metric."""
    there = [(iteration, size, metric) for iteration, size, metric in points if metric is not None]
    across, sent, up = ([point[i] for point in there] for i in range(3))
    return Line(name, {ITERATIONS.key: across, SENT.key: sent, "metric": up})

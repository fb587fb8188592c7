"""Records and summaries: typed values that are written as the JSON they always were."""

import json
import math
from typing import Any

import pytest

import gammafl as gf
from gammafl.config.schema import Faults
from gammafl.federated.faults import carrier
from gammafl.federated.residuals import ResidualStore
from gammafl.federated.rounds import run_rounds, start
from gammafl.federated.summary import summarise
from gammafl.files.reading import checked
from tests.problems import METHODS, plan_for

USUAL = {"round": 1, "iteration": 5, "participants": [0, 3], "train_loss": 0.5, "kept": 10, "uplink_bytes": 65}
EVALUATED = {"loss": 0.25, "metric": 0.75, "averaged_loss": 0.5, "averaged_metric": 0.5}


@pytest.mark.parametrize(
    "table",
    [
        USUAL,
        USUAL | {"train_loss": None, "missing": 2},
        USUAL | {"refused": {"3": "too long"}, "missing": 1},
        USUAL | {"loss": math.nan, "metric": 0.1},
        USUAL | EVALUATED,
        USUAL | EVALUATED | {"of_a_later_version": [1, 2]},
    ],
)
def test_a_line_of_the_ledger_is_read_and_written_as_it_is(table: dict[str, Any]) -> None:
    line = json.dumps(table)
    assert json.dumps(checked(gf.RoundRecord, json.loads(line)).table()) == line


@pytest.mark.parametrize(
    "wrong", [{"participants": []}, {"kept": -1}, {"kept": 1.5}, {"metric": 0.1}, {"loss": 1.0}, {"averaged_loss": 1.0}]
)
def test_a_record_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=f"{name}|a loss and a metric"):
        checked(gf.RoundRecord, USUAL | wrong)


def test_a_summary_adds_up_its_records_and_is_written_in_the_order_of_its_fields() -> None:
    plan = plan_for(METHODS["top-k"], faults=Faults(lost=0.2, corrupted=0.2))
    state = start(plan)
    records = list(run_rounds(plan, state, carrier(plan, ResidualStore(plan.method, plan.dim))))
    summary = summarise(plan, state.totals, records, 2.0, phase_seconds={"training": 1.5}, peak_memory_bytes=7)
    assert summary.uplink_bytes == sum(record.uplink_bytes for record in records)
    assert summary.missing_uploads == sum(record.missing for record in records) > 0
    assert summary.refused_uploads == sum(len(record.refused) for record in records)
    assert summary.final == records[-1].metric
    assert (summary.training_seconds, summary.peak_memory_bytes) == (1.5, 7)
    unset = ("link_seconds", "epsilon", "delta", "stopped", "planned_rounds")
    shown = [name for name in gf.Summary.model_fields if getattr(summary, name) != {} and name not in unset]
    assert list(summary.table()) == shown
    assert checked(gf.Summary, json.loads(json.dumps(summary.table()))) == summary


def test_the_keys_of_earlier_versions_are_answered_with_the_attribute() -> None:
    record: Any = checked(gf.RoundRecord, USUAL)
    with pytest.raises(TypeError, match=r"write \.kept, not \['kept'\]"):
        record["kept"]
    with pytest.raises(TypeError, match=r"write \.metric is not None, not 'metric' in it"):
        assert "metric" in record


def test_records_and_summaries_are_frozen() -> None:
    record: Any = checked(gf.RoundRecord, USUAL)
    with pytest.raises(ValueError, match="frozen"):
        record.kept = 3

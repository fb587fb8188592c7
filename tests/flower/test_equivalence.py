"""What was simulated is what is deployed."""

from pathlib import Path

import pytest

import gammafl as gf
from gammafl.methods.ways import Way
from tests import problems
from tests.flower.problem import from_record, run
from tests.problems import METHODS, plan_for

WAYS: dict[str, Way] = {
    "full": "full",
    "changes": "changes",
    "stc": gf.stc(keep=0.2),
    "γ-FedHT": gf.gamma_fedht(initial_threshold=0.05),
    "f16": gf.top_k(keep=0.3, values="f16"),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("name", METHODS)
def test_flower_and_the_simulator_end_with_equal_weights(name: str, way: Way, tmp_path: Path) -> None:
    plan = plan_for(METHODS[name], weights="normalized", downlink=way)
    state, _, records = problems.run(plan)
    strategy, _, model = run(tmp_path, method=METHODS[name], downlink=way)
    assert model.tobytes() == state.held.tobytes()
    if strategy.server_arrays is not None:
        assert from_record(strategy.server_arrays).tobytes() == state.model.tobytes()
    assert (strategy.server_arrays is None) == (way in ("full", "changes"))
    assert [record["uplink_bytes"] for record in strategy.history] == [record.uplink_bytes for record in records]

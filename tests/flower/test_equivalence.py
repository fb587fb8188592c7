"""What was simulated is what is deployed."""

from pathlib import Path

import pytest

from tests import problems
from tests.flower.problem import run
from tests.problems import METHODS, plan_for


@pytest.mark.parametrize("downlink", ["full", "changes"])
@pytest.mark.parametrize("name", METHODS)
def test_flower_and_the_simulator_end_with_equal_weights(name: str, downlink: str, tmp_path: Path) -> None:
    plan = plan_for(METHODS[name], weights="normalized")
    state, _, records = problems.run(plan)
    strategy, _, model = run(tmp_path, method=METHODS[name], downlink=downlink)
    assert model.tobytes() == state.model.tobytes()
    assert [record["uplink_bytes"] for record in strategy.history] == [record.uplink_bytes for record in records]

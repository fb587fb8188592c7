"""examples/algorithm1.py, which knows nothing of gammafl, and the simulator compute the same."""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils import parameters_to_vector
from torch.utils.data import TensorDataset

import gammafl as gf
from gammafl import seeds

EXAMPLE = str(Path(__file__).parents[1] / "examples/algorithm1.py")
LAMBDA_0, ITERATIONS, LOCAL_STEPS, BATCH = 0.2, 200, 5, 20
STEPSIZE = gf.InverseDecay(20, 100)


def linear() -> torch.nn.Module:
    return torch.nn.Linear(8, 3)


def network() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))


def clients_of_other_sizes() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Three clouds of points; six clients, each of which knows two of them, and some have more points."""
    centres = 2 * torch.randn(3, 8)
    labels = [torch.arange(20 + 10 * i) % 2 + i % 2 for i in range(6)]
    return [(centres[of_client] + torch.randn(len(of_client), 8), of_client) for of_client in labels]


@pytest.mark.parametrize("make", [linear, network])
@pytest.mark.parametrize("alpha", [1.0, 2.0])
def test_the_simulator_is_algorithm_1(make: Any, alpha: float) -> None:
    """Same participants and batches: the same model, and as many entries sent in each round."""
    torch.manual_seed(0)
    clients, model = clients_of_other_sizes(), make()
    start = parameters_to_vector(model.parameters()).detach().numpy().copy()
    simulated = gf.simulate(
        model,
        [TensorDataset(*samples) for samples in clients],
        TensorDataset(*clients[0]),
        method=gf.gamma_fedht(initial_threshold=LAMBDA_0, alpha=alpha),
        stepsize=STEPSIZE,
        iterations=ITERATIONS,
        local_steps=LOCAL_STEPS,
        batch_size=BATCH,
    )

    def batch(client: int, t: int) -> Any:
        rng = seeds.generator(0, "batches", t // LOCAL_STEPS, client)
        return rng.integers(len(clients[client][1]), size=(LOCAL_STEPS, BATCH))[t % LOCAL_STEPS]

    example = runpy.run_path(EXAMPLE)
    samples = sum(len(labels) for _, labels in clients)
    rounds = list(
        example["gamma_fedht"](
            start,
            [len(labels) / samples for _, labels in clients],
            example["gradient_of"](model, clients, batch),
            lambda t: simulated.rounds[t // LOCAL_STEPS].participants,
            STEPSIZE,
            LAMBDA_0,
            ITERATIONS,
            LOCAL_STEPS,
            alpha,
        )
    )
    t, x, _ = rounds[-1]
    kept = [sum(np.count_nonzero(update) for update in sent.values()) for _, _, sent in rounds]
    assert t == ITERATIONS
    assert 0 < sum(kept) < 0.5 * len(rounds) * 3 * start.size  # something is sent, something is not
    assert kept == [record.kept for record in simulated.rounds]  # no value is within rounding of the threshold
    end = parameters_to_vector(simulated.model.parameters()).detach().numpy()
    assert np.abs(end - start).max() > LAMBDA_0
    np.testing.assert_allclose(x, end, rtol=1e-5, atol=1e-5)


def test_the_example_learns_from_few_entries(capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    try:
        runpy.run_path(EXAMPLE, run_name="__main__")
    finally:
        torch.set_num_threads(threads)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    accuracies = [float(line[line.index("accuracy") + 1].rstrip("%,")) for line in lines]
    kept = [float(line[line.index("of") - 1].rstrip("%")) for line in lines]
    assert len(lines) == 5
    assert accuracies[-1] > accuracies[0] > 20  # guessing is right in one of ten
    assert max(kept) < 10


def test_the_example_uses_nothing_of_the_package() -> None:
    assert "import gammafl" not in Path(EXAMPLE).read_text()
    assert "from gammafl" not in Path(EXAMPLE).read_text()

"""The problems of the theory study are what their constants say."""

from pathlib import Path

import numpy as np
import pytest

import gammafl as gf
from gammafl.core.thresholds import Units
from gammafl.paper.problems import CONVEXITY, LARGEST, Kind, Separable
from gammafl.paper.theory_run import TheoryJob
from gammafl.runs.progress import Silent


@pytest.mark.parametrize("kind", ["strongly-convex", "non-convex"])
def test_the_gradient_is_that_of_the_value(kind: Kind) -> None:
    task = Separable(kind)
    x = np.random.default_rng(0).standard_normal(task.tensors["x"]).astype(np.float32)
    along = np.random.default_rng(1).standard_normal(x.size)
    step = 1e-3
    ahead, behind = (task.value(x.astype(np.float64) + sign * step * along) for sign in (1, -1))
    assert (ahead - behind) / (2 * step) == pytest.approx(float(task.gradients(x).sum(0) @ along), rel=1e-4)


def test_the_optimum_has_no_error_and_no_gradient() -> None:
    task = Separable("strongly-convex")
    assert task.evaluate(task.optimum).loss == 0
    np.testing.assert_allclose(task.gradients(task.optimum).sum(0), 0, atol=1e-4)
    x = task.initial_model(np.random.default_rng())
    assert task.evaluate(x).loss == pytest.approx((task.value(x) - task.value(task.optimum)) / 10, rel=1e-4)


def test_the_curvatures_lie_between_mu_and_l_and_reach_both() -> None:
    curvature = Separable("strongly-convex").curvature
    assert (curvature.min(), curvature.max()) == pytest.approx((CONVEXITY, LARGEST))


def test_the_noise_is_as_large_as_sigma_says() -> None:
    """One step of stepsize 1 from x moves by the gradient and the noise."""
    task = Separable("strongly-convex")
    x = task.initial_model(np.random.default_rng())
    rngs = [np.random.default_rng(i) for i in range(400)]
    updates = task.train([0] * 400, x, np.ones(1, np.float32), rngs)
    squares = [float(np.square(update.delta - task.gradients(x)[0]).sum()) for update in updates]
    assert np.mean(squares) == pytest.approx(task.constants().noise ** 2, rel=0.05)


def test_g_and_gamma_are_the_largest_that_were_met() -> None:
    task = Separable("non-convex")
    x = task.initial_model(np.random.default_rng())
    list(task.train([0, 1], x, np.zeros(1, np.float32), [np.random.default_rng(0)] * 2))
    each = task.gradients(x)
    met = max(float(each[i] @ each[i]) for i in (0, 1))
    assert task.constants().gradient_bound == pytest.approx(np.sqrt(met + task.constants().noise ** 2))
    task.evaluate(x)
    apart = np.square(each - each.mean(0)).sum(1).max()
    assert task.constants().heterogeneity == pytest.approx(float(apart))


def test_both_units_start_with_the_same_threshold_and_only_one_follows_the_stepsize(tmp_path: Path) -> None:
    def threshold(units: Units, t: int) -> float:
        job = TheoryJob("strongly-convex", 0, tmp_path, "gamma-fedht", 10_000, units)
        compressor = job.compression().compressor
        assert isinstance(compressor, gf.GammaFedHT)
        return compressor.threshold(gf.Schedule(job.stepsize, 10_000).moment(t))

    assert threshold("update", 0) == pytest.approx(threshold("gradient", 0))
    assert threshold("gradient", 10_000) < threshold("update", 10_000) / 10


def test_compression_changes_the_run_and_raises_its_bound(tmp_path: Path) -> None:
    dense = TheoryJob("strongly-convex", 0, tmp_path, "fedavg", 300).run(Silent())
    sparse = TheoryJob("strongly-convex", 0, tmp_path, "gamma-fedht", 300, "gradient").run(Silent())
    assert dense.figures["error"] != sparse.figures["error"]
    assert dense.figures["bound"] < sparse.figures["bound"]

"""Residuals on disk in bfloat16: half the bytes, nothing lost on average, and forged ones are put aside."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import gammafl as gf
import gammafl.flower
from gammafl import seeds
from gammafl.core.arrays import Vector
from gammafl.core.halved import PART, from_halves, round_by_chance, to_halves
from gammafl.files import tensor_files
from gammafl.flower.disk import HALVES
from tests.flower.books import computed
from tests.flower.grid import InProcessGrid, state_files
from tests.flower.problem import by_hand, quadratic_app, run, strategy
from tests.problems import METHODS, Quadratic

HALVED = {"residuals": "bf16"}
LARGEST = float(np.finfo(np.float32).max)


@given(
    arrays.arrays(np.float32, st.integers(0, 40), elements=st.floats(-LARGEST, LARGEST, width=32)), st.integers(0, 9)
)
def test_a_vector_is_rounded_to_a_neighbour_once_and_comes_back_from_its_halves(vector: Vector, seed: int) -> None:
    rounded = vector.copy()
    round_by_chance(rounded, np.random.default_rng(seed))
    assert np.isfinite(rounded).all()
    assert (np.abs(rounded - vector.astype(np.float64)) <= 2.0**-7 * np.abs(vector) + 2.0**-133).all()
    assert from_halves(to_halves(rounded)).tobytes() == rounded.tobytes()
    assert to_halves(rounded).nbytes == 2 * vector.size
    again = rounded.copy()
    round_by_chance(again, np.random.default_rng(seed + 1))
    assert again.tobytes() == rounded.tobytes()


def test_small_updates_to_a_large_residual_are_not_lost_on_average() -> None:
    """To the nearest, a thousand updates of 1/1024 to a residual of 1 would come to nothing."""
    residual, rng = np.ones(2000, np.float32), np.random.default_rng(0)
    for _ in range(1000):
        residual += np.float32(2.0**-10)
        round_by_chance(residual, rng)
    assert abs(float(residual.mean()) - (1 + 1000 / 1024)) < 0.01


def test_long_vectors_are_rounded_part_by_part() -> None:
    vector = np.full(PART + 7, 1 + 2.0**-10, np.float32)
    round_by_chance(vector, np.random.default_rng(0))
    assert set(vector.tolist()) == {1.0, 1.0078125}
    assert set(vector[-7:].tolist()) <= {1.0, 1.0078125}


def stored(directory: Path) -> dict[str, Any]:
    return {path.stem: dict(tensor_files.read(path)[1]) for path in state_files(directory)}


@pytest.mark.parametrize("name", ["top-k", "stc", "gamma-fedht"])
def test_a_training_learns_as_well_and_what_it_loses_is_small(
    name: str, tmp_path: Path, applied: dict[str, Vector]
) -> None:
    """Of what each client computed; the loss is that of one rounding for each round that an entry waits."""
    task = Quadratic()
    before = task.evaluate(task.initial_model(seeds.generator(0, "model"))).metric
    _, _, exact = run(tmp_path / "f32", 40, Quadratic(), method=METHODS[name], fraction_train=1.0)
    applied.clear()
    _, _, model = run(tmp_path / "bf16", 40, task, client=HALVED, method=METHODS[name], fraction_train=1.0)
    assert before - task.evaluate(model).metric > 0.9 * (before - task.evaluate(exact).metric)
    for who, tensors in stored(tmp_path / "bf16").items():
        assert "residual" not in tensors
        rest = from_halves(tensors[HALVES])
        missing = np.linalg.norm(applied[who] + rest - computed(task, who))
        assert missing < 0.02 * np.linalg.norm(computed(task, who))


def test_the_same_training_again_gives_the_same_model_and_files(tmp_path: Path) -> None:
    """Rounding is by chance, but not by the clock's or the operating system's."""
    first, again = (
        run(tmp_path / name, 6, client=HALVED, method=METHODS["top-k"], fraction_train=1.0)[2] for name in "ab"
    )
    assert first.tobytes() == again.tobytes()
    for one, other in zip(*(stored(tmp_path / name).values() for name in "ab"), strict=True):
        assert one[HALVES].tobytes() == other[HALVES].tobytes()


def test_a_client_may_change_how_it_stores_between_two_rounds(tmp_path: Path) -> None:
    task = Quadratic()
    chosen, kinds = strategy(method=METHODS["top-k"], fraction_train=1.0), []
    grid = InProcessGrid(quadratic_app(task, tmp_path), 4)
    with by_hand(chosen, grid, 4) as play:
        for number, residuals in enumerate(["f32", "bf16", "bf16", "f32"], 1):
            grid.app = quadratic_app(task, tmp_path, residuals=residuals)
            play(number)
            kinds.append([HALVES in tensors for tensors in stored(tmp_path).values()])
    assert kinds == [[False] * 4, [True] * 4, [True] * 4, [False] * 4]
    assert [len(record["clients"]) for record in chosen.history] == [4] * 4


@pytest.mark.parametrize(
    "halves", [np.zeros(98, np.uint8), np.full(100, 0x7F, np.uint8) | 0x80, np.zeros(50, np.float32)]
)
def test_halves_that_make_no_sense_are_put_aside(halves: Any, tmp_path: Path) -> None:
    task = Quadratic()
    chosen = strategy(method=METHODS["top-k"], fraction_train=1.0)
    grid = InProcessGrid(quadratic_app(task, tmp_path, residuals="bf16"), 4)
    with by_hand(chosen, grid, 2) as play:
        play(1)
        path = state_files(tmp_path)[0]
        facts, tensors = tensor_files.read(path)
        tensor_files.replace(path, {**dict(tensors), HALVES: halves}, facts)
        play(2)
    assert len(list(tmp_path.rglob("*.damaged-*"))) == 1
    assert len(chosen.history[1]["clients"]) == 4


def test_other_words_are_refused() -> None:
    with pytest.raises(gf.InputError, match="residuals must be 'f32' or 'bf16'"):
        gammafl.flower.compress(residuals="fp8")  # type: ignore[arg-type]

"""The benchmarks measure what they say they measure."""

import math
import sys
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gammafl as gf
from benchmarks import (
    compress,
    context,
    density,
    device,
    growth,
    halved,
    hostile,
    measure,
    parts,
    scale,
    simulate,
    wire,
)
from benchmarks.measure import medians, show_seconds, verdict
from benchmarks.ours import make_task
from benchmarks.peers import work
from gammafl.core import threads
from gammafl.core.compressors import HardThreshold, TopK
from gammafl.core.layout import Layout
from gammafl.core.memory import Residual
from gammafl.core.method import as_method
from gammafl.core.moment import Moment
from gammafl.paper.cost import FUSED
from gammafl.runs.progress import Silent
from gammafl.tasks.models import MODELS


def test_what_people_write_in_torch_selects_what_we_select() -> None:
    residual, delta = np.random.default_rng(0).standard_normal((2, 5000), np.float32)
    r, u = torch.from_numpy(residual), torch.from_numpy(delta)
    for ours, theirs in (
        (HardThreshold(measure.THRESHOLD), compress._above(r + u)),
        (TopK(7), compress.naive_top_k(r, u, 7)),
        (TopK(7), compress.lean_top_k(r + u, 7)),
    ):
        memory = Residual(as_method(ours), 5000, residual.copy())
        update = memory.propose(delta, Moment())
        order = theirs[0].argsort()
        np.testing.assert_array_equal(update.indices, theirs[0][order])
        np.testing.assert_array_equal(update.values, theirs[1][order])
        np.testing.assert_array_equal(memory.residual, theirs[2])


def test_alternating_updates_keep_about_a_thousandth_every_time() -> None:
    contenders = compress._contenders(1_500_000)
    contenders[compress.NAIVE_HT]()
    contenders[compress.NAIVE_HT]()
    for _ in range(4):
        theirs: Any = contenders[compress.NAIVE_HT]()
        ours: Any = contenders[FUSED]()
        assert len(ours) == len(theirs[0])
        assert 1350 < len(ours) < 1650


@pytest.mark.parametrize("fraction", [0.001, 0.1, 0.3])
def test_a_density_is_what_the_pass_and_the_level_keep_every_time(fraction: float) -> None:
    residual, update = measure.residual_and_update(100_000)
    works = density._contenders(fraction, residual, update)
    for _ in range(4):
        kept: Any = works[density.FUSED]()
        planned: Any = works[density.LEVEL]()
        assert len(kept) == pytest.approx(fraction * 100_000, rel=0.5)
        assert len(planned) == fraction * 100_000


def test_the_sums_that_are_compressed_are_numbers_everywhere_as_in_training() -> None:
    residual, update = measure.residual_and_update(100_000)
    memory = Residual(as_method(TopK(100)), 100_000, residual)
    for turn in range(6):
        memory.propose(update if turn % 2 == 0 else -update, Moment())
        assert np.count_nonzero(memory.residual) > 99_000
        assert memory.residual.std() == pytest.approx(1, rel=0.02)


def test_contenders_take_turns_of_three_calls() -> None:
    calls: list[str] = []
    found = medians({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, repeats=2)
    assert calls == ["a", "a", "a", "b", "b", "b"] * 2
    assert list(found) == ["a", "b"]


def test_a_target_that_is_missed_shows() -> None:
    assert verdict(9.5, 9) == "9.5× ✓ (wanted ≥ 9×)"
    assert verdict(8.5, 9) == "8.5× ✗ (wanted ≥ 9×)"
    assert verdict(1.06, 1.05, at_most=True) == "1.06× ✗ (wanted ≤ 1.05×)"
    shown = [show_seconds(s) for s in (7200.0, 120.0, 2.0, 0.0125, 4.2e-6, 3e-9)]
    assert shown == ["2 h", "2 min", "2 s", "12.5 ms", "4.2 µs", "3 ns"]


def test_entropy_is_a_bit_a_coin_and_stc_predicts_the_mean_length_of_golomb_codes() -> None:
    assert wire.entropy(0.5) == 1
    assert wire.entropy(0) == wire.entropy(1) == 0
    p = 0.01
    gaps = np.random.default_rng(0).geometric(p, 100_000) - 1
    bits = min((gaps >> b).mean() + 1 + b for b in range(12))
    assert wire.stc_bits(p) - 1 == pytest.approx(bits, rel=0.01)


def test_the_sizes_table_is_of_real_messages() -> None:
    table = wire.sizes_table(10_000, [0.01, 0.1])
    assert [row[1] for row in table.rows] == ["100", "1,000"]
    for row in table.rows:
        assert int(row[2].replace(",", "")) > 4 * int(row[1].replace(",", ""))


def test_every_contender_trains_the_papers_networks() -> None:
    for name, make in MODELS.items():
        ours = [tuple(p.shape) for p in make(10).parameters()]
        assert [tuple(p.shape) for p in work.network(name).parameters()] == ours
        spec = work.Work(name, 4, 2, 5, 8, 1)
        task = make_task(spec)
        assert (len(task.clients), task.client_sizes) == (4, [work.SAMPLES] * 4)


def test_a_contender_runs_the_rounds_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """gammafl and the plain loop as real processes; peers that are not installed are said to be missing."""
    monkeypatch.setattr(simulate, "SECONDS", 0.01)
    table = simulate.table(work.Work("logistic", 4, 2, 5, 8, 1), tmp_path, 1, Silent())
    assert [row[0].split()[0] for row in table.rows] == ["gammafl", "plain"]
    assert all(float(row[1]) > 0 for row in table.rows)
    assert "not installed: pfl, flower (make peers)" in table.note


def test_a_contender_that_fails_is_named() -> None:
    with (
        pytest.raises(Exception, match="ended with exit code 3"),
        simulate.started([sys.executable, "-c", "import sys; sys.exit(3)"], work.Work("logistic", 4, 2, 5, 8, 1)),
    ):
        pass


def test_growth_counts_the_clients_that_took_part() -> None:
    table = growth.table([10, 200], rounds_each=3)
    assert [row[0] for row in table.rows] == ["10", "200", "200, 20.00 MB for residuals"]
    took_part = [int(row[4]) for row in table.rows]
    assert took_part[0] == 10
    assert 10 < took_part[1] <= 30
    assert took_part[1] == took_part[2]
    assert math.isfinite(float(table.rows[0][1].split()[0]))


def test_the_sheet_grows_with_what_it_counts() -> None:
    costs = scale.UnitCosts(1e-9, 1e-8, 1e-5, 2e-8, 2e-5)
    assert costs.upload(1e9) == pytest.approx(1 + 0.01, rel=1e-3)
    assert costs.receive(1e6) == pytest.approx(2e-5 + 2e-5)
    assert [len(table.rows) for table in scale.tables(costs, (1e5, 1e6), (10, 100))] == [5, 2, 2]
    exact = len(gf.encode(wire.scattered(1_000_000, 1000)))
    assert scale.message_bytes(1e6) == pytest.approx(exact, rel=0.02)


def test_every_phase_of_a_round_is_booked_and_none_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "WARM_UP", 1)
    monkeypatch.setattr(parts, "ROUNDS", 2)
    before = threads.count()
    phases, whole = parts._phases(4, 1, repeats=1)
    assert list(phases) == list(parts.PHASES)
    assert all(phases[phase] > 0 for phase in parts.PHASES if phase != "rest")
    assert phases["rest"] >= 0
    assert sum(phases.values()) == pytest.approx(whole)
    assert threads.count() == before


def test_the_loops_that_are_measured_are_those_that_train(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call without a turn of its loop changes nothing; one with a turn does."""
    monkeypatch.setattr(parts, "TIMES", 1)
    random = np.random.default_rng(0)
    slopes, inputs = random.standard_normal((2, 5), np.float32), random.standard_normal((5, 8), np.float32)
    one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
    for times in (0, 1):
        weights, bias = np.zeros((2, 8), np.float32), np.zeros(2, np.float32)
        parts._update(times, inputs, np.arange(5), one, zero, slopes, weights, bias)
        np.testing.assert_allclose(weights, -times * slopes @ inputs, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(bias, -times * slopes.sum(1), rtol=1e-5, atol=1e-6)
    names = [name for table in (parts.step_table(1), parts.upload_table(1)) for name, _ in table.rows]
    assert {"logits", "softmax and loss", "update of the weights", "decoding them"} <= set(names)


LAYOUT = Layout.of({"weight": (4, 50), "bias": (4,)})


def lengths_of(indices: Any, values: Any) -> dict[str, context.Length]:
    update = gf.SparseUpdate(LAYOUT.dim, indices, values)
    return context.lengths_of(update, context.Places.of(LAYOUT))


def test_lengths_with_contexts_are_those_of_a_code() -> None:
    """Kraft: over all messages of a count, which the header tells, Σ 2^−bits is at most 1."""
    places = context.Places.of(Layout.of({"weight": (2, 3), "bias": (2,)}))
    dim, count = 8, 3
    by_context = by_row = 0.0
    for chosen in combinations(range(dim), count):
        mask, negative = np.zeros(dim, np.int8), np.zeros(dim, np.int8)
        mask[list(chosen)] = 1
        rows = (np.array(chosen), dim, places.row, places.lengths, places.tensors)
        by_row += 2.0 ** -context._row_bits(*rows)
        for signs in product((0, 1), repeat=count):
            negative[list(chosen)] = signs
            by_context += 2.0 ** -sum(context._context_bits(mask, negative, places.tensor, places.row, *places.around))
    assert 0 < by_context <= 1
    assert 0 < by_row <= 1


def test_contexts_save_nothing_of_what_is_scattered_and_much_of_what_is_in_one_row() -> None:
    rng = np.random.default_rng(0)
    scattered, row = np.sort(rng.choice(LAYOUT.dim, 40, replace=False)), np.arange(50, 90)
    signs = rng.choice([-1.0, 1.0], 40)
    for name in (context.ROWS, context.CONTEXTS):
        assert lengths_of(scattered, signs)[name].size >= lengths_of(scattered, signs)[context.EVEN].size
        assert lengths_of(row, signs)[name].size < 0.9 * lengths_of(row, signs)[context.EVEN].size


def test_what_is_recorded_is_what_a_run_sends() -> None:
    layout, updates = context.record("logistic-mini", "gamma-fedht-q", 0.01, 20, 10)
    assert (layout.dim, len(updates)) == (10_250, 10)
    for lengths in (context.lengths_of(update, context.Places.of(layout)) for update in updates):
        assert 0 < lengths[context.TODAY].size <= lengths[context.RICE].size


def test_hostile_clients_lie_about_their_training_and_honest_ones_do_not() -> None:
    honest, first = np.ones(50, np.float32), np.full(50, 2, np.float32)
    lies = {attack.name: attack.lie(honest, first, np.random.default_rng(0)) for attack in hostile.ATTACKS}
    sizes = {name: float(np.linalg.norm(lie) / np.linalg.norm(honest)) for name, lie in lies.items()}
    assert [round(size, 3) for size in sizes.values()] == [1, 10, 100, 2]
    assert [float(np.sign(lie @ honest)) for lie in lies.values()][::3] == [1, -1]


def test_sign_flips_ruin_an_average_and_not_multi_krum() -> None:
    """The study of docs/security.md at a tiny size."""
    flips = hostile.ATTACKS[1]
    average, robust = (
        hostile.accuracy(name, "everything", gf.Limits(), flips, 4, 0) for name in ("FedAvg", "MultiKrum")
    )
    assert average < robust - 0.1


def test_a_state_with_residuals_in_bfloat16_takes_about_half() -> None:
    (_, whole), (_, half) = (halved.measured(how, 1, 0) for how in ("f32", "bf16"))
    assert 0.5 < half / whole < 0.6


def test_a_device_is_measured_beside_a_copy_and_torch() -> None:
    """Without a GPU, on the CPU's tensors."""
    (table,) = device.tables([20_000], "cpu", 0.01, 1)
    assert {row[0] for row in table.rows} >= {device.OURS, device.OUR_TOP_K, "torch.topk alone"}

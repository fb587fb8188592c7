"""Error feedback: the fused kernels against the readable three lines, bit for bit, and conservation."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import gammafl as gf
from gammafl.core import kernels
from gammafl.core import threads as core_threads
from gammafl.core.arrays import Vector
from gammafl.core.compressors import Compressor
from gammafl.core.sparse import SparseUpdate
from tests.conftest import vectors
from tests.core.test_compressors import COMPRESSORS, ROUNDING, at, every_compressor, remembering

EPSILON = float(np.finfo(np.float32).eps)


def round_update(
    compress: gf.Method | Compressor, delta: Vector, residual: Vector, t: int
) -> tuple[SparseUpdate, Vector]:
    """Algorithm 1, lines 12-13, as one reads them."""
    wanted = residual + delta
    sent = compress(wanted, at(t))  # line 12
    return sent, wanted - sent.dense()  # line 13


@every_compressor
@pytest.mark.parametrize("dim", [0, 1, 63, 64, 65, 1000])
def test_the_fused_form_agrees_with_the_readable_one_bit_for_bit(name: str, dim: int) -> None:
    method = COMPRESSORS[name]
    memory, residual = remembering(method, dim), np.zeros(dim, np.float32)
    for t, delta in enumerate(vectors(6, dim, scale=0.4), start=1):
        expected, residual = round_update(method, delta, residual, 5 * t)
        assert memory.propose(delta, at(5 * t)) == expected
        np.testing.assert_array_equal(memory.residual, residual)


@pytest.mark.parametrize("room", [0, 50, 1 << 16])
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("method", [gf.HardThreshold(2.5), gf.HardThreshold(0), gf.TopK(0.001), gf.TopK(0.9)])
def test_results_depend_neither_on_the_number_of_threads_nor_on_the_room_for_what_is_found(
    method: Compressor, threads: int, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "SLICE_AT_LEAST", 100)
    monkeypatch.setattr(core_threads, "_count", threads)
    monkeypatch.setattr(kernels, "ROOM", room)
    monkeypatch.setattr(kernels, "_free_rooms", [])
    delta, residual = vectors(2, 10_007)
    expected, rest = round_update(method, delta, residual.copy(), 0)
    memory = remembering(method, delta.size, residual.copy())
    assert memory.propose(delta, at(0)) == expected
    np.testing.assert_array_equal(memory.residual, rest)


@every_compressor
def test_what_is_not_sent_is_remembered(name: str) -> None:
    """Σ updates = Σ sent + residual, up to the roundings that the invariant in core/memory.py allows."""
    dim, method = 500, COMPRESSORS[name]
    memory = remembering(method, dim)
    computed, sent, allowed = np.zeros(dim), np.zeros(dim), np.zeros(dim)
    for t, delta in enumerate(vectors(30, dim, scale=0.3), start=1):
        wanted = np.abs(memory.residual.astype(float) + delta)
        update = memory.propose(delta, at(5 * t))
        computed += delta
        sent += update.dense()
        allowed += EPSILON / 2 * (wanted + np.abs(memory.residual))
    assert (np.abs(computed - sent - memory.residual) <= allowed).all()


@pytest.mark.parametrize("name", sorted(COMPRESSORS.keys() - ROUNDING))
def test_where_no_sum_is_rounded_nothing_at_all_is_lost(name: str) -> None:
    """Multiples of 2⁻¹⁰ add up exactly in float32, so conservation is an equality."""
    dim, rng = 300, np.random.default_rng(1)
    memory = remembering(COMPRESSORS[name], dim)
    computed, sent = np.zeros(dim), np.zeros(dim)
    for t in range(1, 40):
        delta = (rng.integers(-1024, 1025, dim) / 1024).astype(np.float32)
        computed += delta
        sent += memory.propose(delta, at(t)).dense()
    np.testing.assert_array_equal(computed, sent + memory.residual)


@given(hnp.arrays(np.float32, 70, elements=st.floats(-1, 1, width=32)), st.integers(0, 69))
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_an_update_that_is_not_finite_is_refused_and_changes_nothing(poison: float, start: Vector, place: int) -> None:
    for method in (gf.HardThreshold(0.1), gf.TopK(3), gf.stc(k=4)):
        memory = remembering(method, 70, start.copy())
        delta = np.ones(70, np.float32)
        delta[place:] = poison
        with pytest.raises(gf.DivergedError, match=rf"at position {place} of 70"):
            memory.propose(delta, at(0))
        assert memory.residual.tobytes() == start.tobytes()


@every_compressor
def test_knowing_the_largest_magnitude_changes_no_result(name: str) -> None:
    looks, knows = (remembering(COMPRESSORS[name], 500) for _ in range(2))
    for t, delta in enumerate(vectors(4, 500), start=1):
        assert knows.propose(delta, at(t), kernels.largest_magnitude(delta)) == looks.propose(delta, at(t))
        np.testing.assert_array_equal(knows.residual, looks.residual)


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_an_update_known_to_be_not_finite_is_refused_and_changes_nothing(poison: float) -> None:
    start, after = vectors(2, 70)
    after[33] = poison
    delta = np.empty(70, np.float32)
    largest = kernels.difference(start, after, delta)
    memory = remembering(gf.HardThreshold(0.1), 70, start.copy())
    with pytest.raises(gf.DivergedError, match="at position 33 of 70"):
        memory.propose(delta, at(0), largest)
    assert memory.residual.tobytes() == start.tobytes()


FLOATS = hnp.arrays(np.float32, (2, 150), elements=st.floats(width=32))


@given(FLOATS, st.integers(1, 3))
def test_a_difference_comes_with_its_largest_magnitude(pair: Vector, threads: int) -> None:
    out = np.empty(150, np.float32)
    with pytest.MonkeyPatch.context() as patch, np.errstate(over="ignore", invalid="ignore"):
        patch.setattr(kernels, "SLICE_AT_LEAST", 10)
        patch.setattr(core_threads, "_count", threads)
        largest = kernels.difference(pair[0], pair[1], out)
        np.testing.assert_array_equal(out, pair[0] - pair[1])
        np.testing.assert_array_equal(largest, np.abs(out).max())
        np.testing.assert_array_equal(kernels.largest_magnitude(out), largest)


def test_a_difference_of_vectors_of_different_lengths_is_refused() -> None:
    with pytest.raises(gf.InputError, match="one length"):
        kernels.difference(np.zeros(9, np.float32), np.zeros(8, np.float32), np.zeros(9, np.float32))


def test_a_sum_that_overflows_is_refused_and_changes_nothing() -> None:
    large = np.full(3, 3e38, np.float32)
    memory = remembering(gf.TopK(0), 3)
    memory.propose(large, at(0))
    with pytest.raises(gf.DivergedError, match="position 0"):
        memory.propose(large, at(0))
    np.testing.assert_array_equal(memory.residual, large)
    memory.propose(-large, at(0))
    np.testing.assert_array_equal(memory.residual, 0)


def test_a_tensor_is_taken_without_being_copied_or_changed() -> None:
    delta = torch.linspace(-1, 1, 100, requires_grad=True)
    before = delta.detach().clone()
    by_tensor = remembering(gf.HardThreshold(0.5), 100).propose(delta, at(0))
    by_array = remembering(gf.HardThreshold(0.5), 100).propose(before.numpy(), at(0))
    assert by_tensor == by_array
    assert torch.equal(delta.detach(), before)


@pytest.mark.parametrize(
    "bad",
    [
        np.zeros(9, np.float32),
        np.zeros(10),
        np.zeros((2, 5), np.float32),
        np.zeros(20, np.float32)[::2],
        [0.0],
    ],
)
def test_a_delta_of_another_shape_or_type_is_refused_by_name(bad: object) -> None:
    with pytest.raises(gf.InputError, match="delta must be a contiguous float32 vector of 10 elements"):
        remembering(gf.Dense(), 10).propose(bad, at(0))


def test_tensor_sizes_that_do_not_fit_are_refused() -> None:
    layout = gf.Layout.of({"first": (2,), "second": (3,)})
    with pytest.raises(gf.InputError, match="add up to 5"):
        remembering(gf.TopK(0.1, "tensor"), 6).propose(np.ones(6, np.float32), gf.Moment(layout=layout))


def test_without_memory_the_rest_is_dropped_and_an_update_that_did_not_count_is_not() -> None:
    method, (first, second) = gf.Method(gf.TopK(3), memory=gf.NoMemory()), vectors(2, 50)
    memory = method.memory.client(method, 50)
    sent = memory.propose(first, at(5))
    assert sent == gf.TopK(3)(first)
    assert not memory.state()
    memory.take_back(sent)
    again = method.memory.client(method, 50, memory.state())  # as from a checkpoint
    assert again.propose(second, at(10)) == memory.propose(second, at(10)) == gf.TopK(3)(sent.dense() + second)


@every_compressor
def test_what_is_taken_back_is_as_if_it_had_never_been_sent(name: str) -> None:
    method, (first, second) = COMPRESSORS[name], vectors(2, 100, scale=0.25)
    lossy, silent = remembering(method, 100), remembering(method, 100)
    lossy.take_back(lossy.propose(first, at(5)))
    silent.add(first)
    np.testing.assert_allclose(lossy.residual, silent.residual, atol=1e-6)
    both = silent.propose(second, at(10)).dense() + silent.residual
    np.testing.assert_allclose(both, first + second, atol=1e-6)


def test_dense_sends_what_it_took_back_and_then_remembers_nothing() -> None:
    memory = remembering(gf.Dense(), 3, np.array([0, 1, 0], np.float32))
    assert memory.propose(np.ones(3, np.float32), at(0)).values.tolist() == [1, 2, 1]
    assert memory.propose(np.ones(3, np.float32), at(1)).values.tolist() == [1, 1, 1]
    assert not memory.residual.any()

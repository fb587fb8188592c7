"""What codes are made of: keyed positions, whole numbers with scales, rotations. Each against its equation in numpy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import gammafl as gf
from gammafl.core import blocks, drawn, rotation
from gammafl.core.arrays import Vector
from tests.core.test_compressors import HOSTILE
from tests.methods.proofs import reference

FLOATS = hnp.arrays(np.float32, st.integers(1, 300), elements=st.floats(-(2.0**100), 2.0**100, width=32))
GOLDEN = 0x9E3779B97F4A7C15
WORD = 2**64 - 1


def mixed(word: int) -> int:
    """splitmix64's last step."""
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & WORD
    word = (word ^ word >> 27) * 0x94D049BB133111EB & WORD
    return word ^ word >> 31


def hashed(key: int, number: int) -> int:
    return mixed(key + (number + 1) * GOLDEN & WORD)


# --- positions that a key draws ---------------------------------------------------------------------------


def permuted(key: int, place: int, dim: int) -> int:
    """As docs/wire-format.md words it."""
    bits = max(8, (dim - 1).bit_length())
    low = bits // 2
    while True:
        high, rest = place >> low, place & (1 << low) - 1
        for turn in range(8):
            if turn % 2:
                rest ^= mixed(hashed(key, turn) ^ high) & (1 << low) - 1
            else:
                high ^= mixed(hashed(key, turn) ^ rest) & (1 << bits - low) - 1
        place = high << low | rest
        if place < dim:
            return place


@reference("rand-k")
@given(st.integers(0, WORD), st.one_of(st.integers(1, 300), st.integers(1, 2**32 - 1)), st.floats(0, 1))
def test_drawn_positions_are_those_of_the_specification(key: int, dim: int, share: float) -> None:
    count = min(dim, round(60 * share))
    expected = sorted(permuted(key, place, dim) for place in range(count))
    assert drawn.positions(key, dim, count).tolist() == expected
    assert len(set(expected)) == count


@pytest.mark.parametrize(("dim", "count"), [(3, 1), (5, 2), (40, 10), (129, 1), (1000, 30)])
def test_every_position_is_drawn_equally_often(dim: int, count: int) -> None:
    """χ² of the counts over many keys; its variance is at most that of independent draws. 6 standard deviations."""
    keys = 40_000
    times = np.zeros(dim)
    for key in range(keys):
        times[drawn.positions(hashed(5, key), dim, count)] += 1
    share = count / dim
    squares = ((times - keys * share) ** 2 / (keys * share * (1 - share))).sum() * (dim - 1) / dim
    assert squares < dim - 1 + 6 * np.sqrt(2 * (dim - 1)) + 20


@pytest.mark.parametrize(("dim", "apart"), [(40, 1), (40, 7), (64, 32), (200, 16)])
def test_two_positions_are_drawn_together_as_often_as_by_chance(dim: int, apart: int) -> None:
    """Pairs at a distance, in samples of a quarter; within 6 standard deviations of what a random subset has."""
    keys, count = 4000, dim // 4
    pairs = 0
    for key in range(keys):
        chosen = np.zeros(dim, bool)
        chosen[drawn.positions(hashed(9, key), dim, count)] = True
        pairs += int((chosen[apart:] & chosen[:-apart]).sum())
    chance = count * (count - 1) / (dim * (dim - 1))
    expected = keys * (dim - apart) * chance
    assert abs(pairs - expected) < 6 * np.sqrt(2 * expected)


# --- whole numbers with scales ----------------------------------------------------------------------------


def nearest(block: Vector, most: int) -> tuple[Vector, np.float32]:
    """The alternation that `blocks.nearest` describes, on one block, in numpy."""
    sizes = np.abs(block).astype(np.float64)
    scale = np.float32(max(np.float32(sizes.max() / np.float32(most)), np.float32(2.0**-149)))
    for _ in range(8):
        q = np.minimum(np.rint(sizes / np.float64(scale)), most)
        scale = np.float32(max((q * sizes).sum() / (q * q).sum(), 2.0**-149))
    q = np.clip(np.rint(block.astype(np.float64) / np.float64(scale)), -most, most)
    return q.astype(np.float32) * scale, scale


@reference("quantised")
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("seed", range(5))
def test_nearest_is_the_alternation_written_plainly(bits: int, seed: int) -> None:
    vector = np.random.default_rng(seed).standard_normal(700).astype(np.float32)
    values, code = blocks.nearest(vector, bits, 256)
    for number, start in enumerate(range(0, 700, 256)):
        expected, scale = nearest(vector[start : start + 256], 2 ** (bits - 1) - 1)
        np.testing.assert_allclose(code.scales[number], scale, rtol=1e-6)
        np.testing.assert_allclose(values[start : start + 256], expected, rtol=1e-6)


def squares(vector: Vector) -> float:
    return float((vector.astype(np.float64) ** 2).sum())


@given(FLOATS, st.sampled_from([2, 4, 8]), st.integers(1, 320))
def test_rounding_to_bits_contracts(vector: Vector, bits: int, block: int) -> None:
    """‖x − Q(x)‖² ≤ (1 − 1/B)·‖x‖²: with the first scale a block's largest value is exact and no error is larger than
    its value; later scales only make the error smaller."""
    values, _ = blocks.nearest(vector, bits, block)
    longest = min(block, vector.size)
    assert squares(vector - values) <= (1 - 1 / longest + 1e-6) * squares(vector) + 1e-80


@given(FLOATS, st.sampled_from([4, 8]))
def test_the_error_is_no_larger_than_that_of_the_largest_magnitudes_scale(vector: Vector, bits: int) -> None:
    most = 2 ** (bits - 1) - 1
    scale = np.abs(vector).max().astype(np.float64) / most
    plain = np.rint(vector / scale) * scale if scale > 1e-40 else np.zeros_like(vector)
    values, _ = blocks.nearest(vector, bits, vector.size)
    assert squares(vector - values) <= squares(vector - plain) * (1 + 1e-5) + 1e-10 * squares(vector)


@pytest.mark.parametrize("vector", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_hostile_vectors_become_finite_whole_numbers_of_their_scale(vector: Vector, bits: int) -> None:
    for values, code in (
        blocks.nearest(vector, bits, 64),
        blocks.by_chance(vector, 2 ** (bits - 1) - 1, 64, "max", 3),
        blocks.by_chance(vector, 2 ** (bits - 1) - 1, 64, "l2", 3),
    ):
        assert np.isfinite(values).all()
        assert blocks.unpacked(blocks.packed(values, code), code, values.size).tobytes() == values.tobytes()
        assert (np.abs(blocks.packed(values, code)).size * 8) // bits >= values.size


# --- QSGD -------------------------------------------------------------------------------------------------


def qsgd(block: Vector, levels: int, norm: float, chances: np.ndarray) -> np.ndarray:
    """Alistarh et al., section 3: ‖v‖·sgn(v_i)·ξ_i with ξ_i = ℓ/s, or (ℓ+1)/s with probability |v_i|·s/‖v‖ − ℓ."""
    a = np.abs(block.astype(np.float64)) / norm * levels
    lower = np.floor(a)
    xi = (lower + (chances >= 1 - (a - lower))) / levels
    return norm * np.sign(block) * xi


@reference("qsgd")
@pytest.mark.parametrize("norm", ["max", "l2"])
@pytest.mark.parametrize("levels", [1, 3, 7, 100])
def test_rounding_by_chance_is_the_papers_equation(norm: blocks.Norm, levels: int) -> None:
    vector = np.random.default_rng(levels).standard_normal(500).astype(np.float32)
    values, code = blocks.by_chance(vector, levels, 200, norm, key=77)
    chances = np.array([hashed(77, j) >> 11 for j in range(500)]) * 2.0**-53
    for start in range(0, 500, 200):
        part = slice(start, start + 200)
        piece = vector[part].astype(np.float64)
        size = float(np.abs(piece).max() if norm == "max" else np.linalg.norm(piece))
        expected = qsgd(vector[part], levels, size, chances[part])
        np.testing.assert_allclose(values[part], expected, rtol=1e-6, atol=1e-7 * size)
        np.testing.assert_allclose(code.scales[start // 200] * levels, size, rtol=1e-6)


@pytest.mark.parametrize("norm", ["max", "l2"])
@pytest.mark.parametrize("levels", [1, 7])
def test_rounding_by_chance_is_right_on_average_within_its_variance(norm: blocks.Norm, levels: int) -> None:
    """The mean of n draws is within 6 of its standard deviations, and E‖Q − v‖² ≤ min(B/s², √B/s)·‖v‖² (Lemma 3.1);
    for the largest magnitude M, a value's variance is at most (M/s)²/4."""
    vector = np.random.default_rng(1).standard_normal(256).astype(np.float32)
    draws = np.array([blocks.by_chance(vector, levels, 256, norm, key)[0] for key in range(4000)], np.float64)
    size = float(np.linalg.norm(vector) if norm == "l2" else np.abs(vector).max())
    deviation = size / levels / 2  # of one draw, at the most
    assert (np.abs(draws.mean(axis=0) - vector) <= 6 * deviation / np.sqrt(len(draws))).all()
    error = ((draws - vector) ** 2).sum(axis=1).mean()
    bound = min(256 / levels**2, 16 / levels) * squares(vector) if norm == "l2" else 256 * deviation**2
    assert error <= bound * 1.02


@reference("qsgd")
def test_the_equation_is_what_a_public_implementation_does() -> None:
    """Recorded from GRACE's QSGD for torch (sands-lab/grace, fd3a7f4) with 4 levels: its draws, levels and norm."""
    vector = np.array([0.5, -1.25, 0.0, 2.0, -0.125, 0.75, -0.3, 0.9], np.float32)
    draws = np.array([0.0042635202, 0.1055693626, 0.2858424783, 0.0269548297, 0.4716143608, 0.0601162910, 0.7718658447,
                      0.7436993718])  # fmt: skip
    recorded, norm = np.array([1, -2, 0, 3, 0, 2, 0, 1]), 2.70011568
    np.testing.assert_allclose(np.linalg.norm(vector), norm, rtol=1e-6)
    np.testing.assert_allclose(qsgd(vector, 4, norm, 1 - draws), norm / 4 * recorded, rtol=1e-6)


# --- rotations --------------------------------------------------------------------------------------------


def hadamard(n: int) -> np.ndarray:
    matrix = np.ones((1, 1))
    while len(matrix) < n:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix


def signs_of(key: int, start: int, n: int) -> np.ndarray:
    bits = [hashed(key, (start + j) // 64) >> (start + j) % 64 & 1 for j in range(n)]
    return 1.0 - 2.0 * np.array(bits)


def block_lengths(count: int) -> list[int]:
    left, lengths = -(-count // 64) * 64, []
    while left:
        lengths.append(min(2**16, 1 << left.bit_length() - 1))
        left -= lengths[-1]
    return lengths


def drive(vector: Vector, key: int, rule: str) -> np.ndarray:
    """Vargaftik et al., algorithm 1, with R = H·D/√n, on each block."""
    out, start = [], 0
    for n in block_lengths(vector.size):
        x = np.zeros(n)
        piece = vector[start : start + n]
        x[: piece.size] = piece
        rotate = hadamard(n) * signs_of(key, start, n) / np.sqrt(n)
        y = rotate @ x
        scale = (x @ x) / np.abs(y).sum() if rule == "unbiased" else np.abs(y).sum() / n
        out.append((rotate.T @ (scale * np.where(y < 0, -1, 1)))[: piece.size])
        start += n
    return np.concatenate(out)


@reference("drive")
@pytest.mark.parametrize("rule", ["unbiased", "nearest"])
@pytest.mark.parametrize("dim", [1, 63, 64, 65, 200, 1000])
def test_a_rotation_is_the_papers_equation(dim: int, rule: rotation.ScaleRule) -> None:
    vector = np.random.default_rng(dim).standard_normal(dim).astype(np.float32)
    values, code = rotation.rotated(vector, 12345, rule)
    np.testing.assert_allclose(values, drive(vector, 12345, rule), rtol=1e-5, atol=1e-6)
    assert rotation.restored(code, dim).tobytes() == values.tobytes()
    assert len(block_lengths(dim)) == rotation.blocks_of(dim) == code.scales.size


@reference("drive")
def test_a_rotation_gives_what_its_authors_code_gives() -> None:
    """Recorded from drive_torch (amitport/DRIVE-One-bit-Distributed-Mean-Estimation, f87a915), 64 values.

    The random signs are theirs: the vector is multiplied by the product of theirs and ours, which ours undo.
    """
    vector = np.array([
        -0.069, -0.687, -0.788, 1.076, -0.011, -0.456, -0.039, -2.621, -0.823, -1.543, 0.455, -0.392, 0.957, 0.381,
        -1.224, 0.164, -0.709, -0.145, 0.204, -0.692, 0.794, 0.196, -0.03, -1.406, -0.463, -0.727, 0.939, 2.334, 0.068,
        -2.176, -1.222, 0.904, -0.96, 2.718, -1.549, 0.842, 0.019, -0.505, -0.452, -0.597, 0.737, -0.763, 0.062, -0.765,
        1.819, 1.062, 0.299, -0.453, -0.708, 0.518, -0.44, -0.035, -0.625, 1.016, 0.528, 0.173, 0.862, -0.418, -0.415,
        0.828, 0.039, 0.459, 0.046, -0.051,
    ], np.float32)  # fmt: skip
    theirs = signed("--+-+-+--+-----+--+-+++-++++-+-+--+----+-+---+---++++----+-+-+-+")
    rotated_signs = signed("+--+-+++++++-++---+--+++-+-+----++-+--+-+-+--+----+-+++-+---+-+-")
    recorded = 0.28556311 * np.array([
        1, -3, -1, 5, 1, -1, 1, -9, -3, -1, 5, 1, 7, -1, -1, 1, -5, 3, 1, -1, 7, 3, 3, -7, -3, -3, 1, 9, -3, -9, -7, 3,
        -3, 9, -5, 1, -1, -1, -1, 1, 1, 3, 1, -3, 7, 9, -1, -1, -5, 5, 1, 1, -5, 1, 1, -3, 3, -3, -1, 1, 1, 3, 5, -1,
    ])  # fmt: skip
    ours = signs_of(99, 0, 64)
    values, code = rotation.rotated((vector * theirs * ours).astype(np.float32), 99, "unbiased")
    np.testing.assert_array_equal(1 - 2.0 * np.unpackbits(code.signs, bitorder="little"), rotated_signs)
    np.testing.assert_allclose(code.scales[0] * np.sqrt(64), 1.14225245, rtol=1e-6)
    np.testing.assert_allclose(values * theirs * ours, recorded, rtol=1e-6)


def signed(text: str) -> np.ndarray:
    return np.array([1.0 if letter == "+" else -1.0 for letter in text])


def test_a_long_vector_is_rotated_in_blocks() -> None:
    vector = np.random.default_rng(0).standard_normal(2**16 + 300).astype(np.float32)
    values, code = rotation.rotated(vector, 7, "nearest")
    assert code.scales.size == rotation.blocks_of(vector.size) == 1 + 2  # 300 are 320 = 256 + 64 with zeros
    for start, stop in ((0, 2**16), (2**16, vector.size)):
        error = squares(vector[start:stop] - values[start:stop]) / squares(vector[start:stop])
        assert abs(error - (1 - 2 / np.pi)) < 0.1


@given(FLOATS, st.integers(0, WORD))
def test_the_nearest_rotation_contracts(vector: Vector, key: int) -> None:
    """‖x − Q(x)‖² ≤ ‖x‖² − ‖Rx‖₁²/n ≤ (1 − 1/n)·‖x‖²; leaving out the padding makes it only smaller."""
    values, _ = rotation.rotated(vector, key, "nearest")
    n = max(block_lengths(vector.size))
    assert squares(vector - values) <= (1 - 1 / n) * squares(vector) * (1 + 1e-5) + 1e-80


def test_the_unbiased_rotation_is_right_on_average_and_as_near_as_its_authors_say() -> None:
    """‖x − x̂‖² is π/2 − 1 of ‖x‖² in the limit (section 4); the mean over n keys is nearer by 1/n, and has no bias."""
    vector, keys = np.random.default_rng(3).lognormal(size=1024).astype(np.float32), 2000
    vector *= np.random.default_rng(4).choice([-1, 1], 1024).astype(np.float32)
    made = np.array([rotation.rotated(vector, hashed(1, key), "unbiased")[0] for key in range(keys)], np.float64)
    errors = ((made - vector) ** 2).sum(axis=1) / squares(vector)
    assert abs(errors.mean() - (np.pi / 2 - 1)) < 0.02
    mean_error = ((made.mean(axis=0) - vector) ** 2).sum() / squares(vector)
    assert mean_error < 2 * errors.mean() / keys


@pytest.mark.parametrize("vector", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("rule", ["unbiased", "nearest"])
def test_hostile_vectors_are_rotated_to_finite_ones(vector: Vector, rule: rotation.ScaleRule) -> None:
    values, code = rotation.rotated(vector, 5, rule)
    assert np.isfinite(values).all()
    assert rotation.restored(code, vector.size).tobytes() == values.tobytes()


# --- bfloat16 ---------------------------------------------------------------------------------------------


@given(hnp.arrays(np.float32, 20, elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_a_bfloat_is_the_nearest_with_an_even_choice_between_two(vector: Vector) -> None:
    import torch

    ours = gf.BFloat().round(gf.SparseUpdate(20, None, vector), [20])
    theirs = torch.from_numpy(vector).to(torch.bfloat16).to(torch.float32).numpy()
    finite = np.isfinite(theirs)
    np.testing.assert_array_equal(ours[finite], theirs[finite])
    np.testing.assert_array_equal(np.abs(ours[~finite]), np.float32(3.3895314e38))  # the largest bfloat

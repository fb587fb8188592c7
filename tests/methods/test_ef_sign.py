"""EF-signSGD: one bit an entry, ‖v‖₁/d·sign(v)."""

import numpy as np
import pytest

import gammafl as gf
from tests.conftest import vectors
from tests.methods.proofs import recorded, reference


@reference("ef-sign")
def test_what_is_sent_is_what_grace_sends() -> None:
    """Also of zeros, which GRACE counts as positive."""
    case = recorded("ef-sign")
    np.testing.assert_array_equal(gf.ef_sign()(case["vector"]).dense(), np.array(case["sent"], np.float32))


@reference("ef-sign")
@pytest.mark.parametrize("dim", [1, 65, 200_001])
def test_it_is_the_papers_equation_where_nothing_is_zero(dim: int) -> None:
    (vector,) = vectors(1, dim)
    expected = np.float32(np.abs(vector.astype(np.float64)).mean()) * np.sign(vector)
    np.testing.assert_allclose(gf.ef_sign()(vector).dense(), expected, rtol=1e-6)


def test_a_message_has_one_bit_an_entry_and_one_magnitude() -> None:
    (vector,) = vectors(1, 8000)
    vector[17] = 0
    message = gf.encode(gf.ef_sign()(vector))
    assert len(message) <= 1000 + 32
    assert gf.decode(message) == gf.ef_sign()(vector)


def test_each_tensor_has_a_magnitude_of_its_own() -> None:
    vector = np.array([8, -4, 0, 0.25, -0.5, 0], np.float32)
    layout = gf.Layout.of({"first": (3,), "second": (3,)})
    update = gf.ef_sign(scope="tensor")(vector, gf.Moment(layout=layout))
    np.testing.assert_array_equal(update.dense(), [4, -4, 4, 0.25, -0.25, 0.25])
    with pytest.raises(gf.InputError, match="the model's tensors"):
        gf.ef_sign(scope="tensor")(vector)
    with pytest.raises(gf.InputError, match="add up to 6"):
        gf.ef_sign(scope="tensor")(vector[:5], gf.Moment(layout=layout))


def test_another_scope_is_refused() -> None:
    with pytest.raises(gf.InputError, match="scope must be 'global' or 'tensor'"):
        gf.ef_sign(scope="layer")  # type: ignore[arg-type]

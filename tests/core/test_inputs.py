"""Whatever is given in place of a vector, an update or a message: the right result, or one line that names it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import gammafl as gf
from tests.conftest import vectors
from tests.core.test_compressors import remembering

DIM = 10
(VECTOR,) = vectors(1, DIM)


class Series:
    """An array of another library, as pandas has them."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return VECTOR


NO_VECTORS: dict[str, Any] = {
    "a matrix": VECTOR.reshape(2, 5),
    "a row": VECTOR.reshape(1, DIM),
    "torch's matrix": torch.from_numpy(VECTOR).reshape(2, 5),
    "bfloat16": torch.from_numpy(VECTOR).bfloat16(),
    "a sparse tensor": torch.from_numpy(VECTOR).to_sparse(),
    "a tensor on no device": torch.zeros(DIM, device="meta"),
    "complex numbers": VECTOR.astype(np.complex64),
    "torch's complex numbers": torch.from_numpy(VECTOR).to(torch.complex64),
    "a masked array": np.ma.masked_array(VECTOR, mask=VECTOR > 0),
    "objects": VECTOR.astype(object),
    "dates": np.zeros(DIM, "datetime64[D]"),
    "a number": 3.0,
    "an array of no dimension": np.array(3, np.float32),
    "a ragged list": [[1.0], [1.0, 2.0]],
    "a text": "0123456789",
    "bytes": b"0123456789",
    "a table": {"delta": VECTOR},
    "nothing": None,
}

AS_GOOD: dict[str, Any] = {
    "a list": VECTOR.tolist(),
    "float64": VECTOR.astype(np.float64),
    "big-endian": VECTOR.astype(">f4"),
    "not contiguous": np.repeat(VECTOR, 2)[::2],
    "torch's not contiguous": torch.from_numpy(np.repeat(VECTOR, 2))[::2],
}
"""Right where a copy is made anyway; not where memory is shared."""

SHARED: dict[str, Any] = {
    "torch's": torch.from_numpy(VECTOR),
    "with a gradient": torch.from_numpy(VECTOR.copy()).requires_grad_(),
    "read-only": np.frombuffer(VECTOR.tobytes(), np.float32),
    "not aligned": np.frombuffer(b"-" + VECTOR.tobytes(), np.uint8)[1:].view(np.float32),
    "another library's": Series(),
}

TAKERS: dict[str, Callable[[Any], Any]] = {
    "error feedback": lambda value: remembering(gf.TopK(3), DIM).propose(value, gf.Moment()),
    "error feedback of all": lambda value: remembering(gf.Dense(), DIM).propose(value, gf.Moment()),
    "a residual": lambda value: remembering(gf.TopK(3), DIM, some(value)),
    "top-k": gf.TopK(3),
    "a threshold": gf.HardThreshold(0.5),
    "a quantiser": gf.stc(k=3),
    "values": lambda value: gf.SparseUpdate(DIM, None, value),
    "indices": lambda value: gf.SparseUpdate(DIM, some(value), VECTOR),
}


def some(value: Any) -> Any:
    """Where None has a meaning of its own."""
    return [None] if value is None else value


def one_line(error: BaseException) -> bool:
    return "\n" not in str(error) and len(str(error)) < 200


@pytest.mark.parametrize("taker", TAKERS)
@pytest.mark.parametrize("name", NO_VECTORS)
def test_what_is_no_vector_is_refused_in_one_line(name: str, taker: str) -> None:
    with pytest.raises(gf.InputError, match="must be a") as caught:
        TAKERS[taker](NO_VECTORS[name])
    assert one_line(caught.value)


@pytest.mark.parametrize("name", ["top-k", "a threshold", "a quantiser", "values"])
@pytest.mark.parametrize("given", [*AS_GOOD, *SHARED])
def test_a_vector_in_another_form_is_the_same_vector(given: str, name: str) -> None:
    assert TAKERS[name]({**AS_GOOD, **SHARED}[given]) == TAKERS[name](VECTOR)


@pytest.mark.parametrize("given", SHARED)
def test_error_feedback_takes_a_vector_of_any_library(given: str) -> None:
    assert TAKERS["error feedback"](SHARED[given]) == TAKERS["error feedback"](VECTOR)


@pytest.mark.parametrize("given", AS_GOOD)
def test_error_feedback_copies_nothing_and_says_what_it_was_given(given: str) -> None:
    with pytest.raises(gf.InputError, match=r"got (list|float64|>f4|.*not contiguous)"):
        TAKERS["error feedback"](AS_GOOD[given])


def test_a_compressor_changes_nothing_in_what_it_is_given() -> None:
    for value in (VECTOR.copy(), VECTOR.astype(np.float64), torch.from_numpy(VECTOR.copy())):
        gf.TopK(3)(value)
        np.testing.assert_array_equal(np.asarray(value, np.float32), VECTOR)


def test_numbers_beyond_float32_are_refused_and_not_made_infinite() -> None:
    for take in (gf.TopK(3), lambda value: gf.SparseUpdate(2, None, value)):
        with pytest.raises(gf.InputError, match="too large for float32"):
            take([1.0, 1e300])


@pytest.mark.parametrize("dim", [None, "10", 1.5, -1, 2**32])
def test_a_dimension_that_is_none_is_named(dim: Any) -> None:
    with pytest.raises(gf.InputError, match="dim must be a whole number"):
        gf.SparseUpdate(dim, [0], [1.0])


MESSAGE = gf.encode(gf.TopK(3)(VECTOR))


@pytest.mark.parametrize(
    "form",
    [
        bytearray,
        memoryview,
        lambda message: np.frombuffer(message, np.uint8),
        lambda message: memoryview(np.repeat(np.frombuffer(message, np.uint8), 2).tobytes())[::2],
    ],
    ids=["bytearray", "memoryview", "array", "every other byte"],
)
def test_a_message_is_read_from_whatever_holds_bytes(form: Callable[[bytes], Any]) -> None:
    assert gf.decode(form(MESSAGE)) == gf.decode(MESSAGE)


@pytest.mark.parametrize("given", [None, "gF", 5, 1.5, [1, 2], torch.zeros(20, dtype=torch.uint8), gf.TopK(3)(VECTOR)])
def test_what_is_no_message_is_refused_in_one_line(given: Any) -> None:
    with pytest.raises(gf.InputError, match="decode takes the bytes of a message, got") as caught:
        gf.decode(given)
    assert one_line(caught.value)


@pytest.mark.parametrize("given", [None, VECTOR, MESSAGE, [1.0], torch.from_numpy(VECTOR)])
def test_what_is_no_update_is_refused_in_one_line(given: Any) -> None:
    with pytest.raises(gf.InputError, match="encode takes a SparseUpdate") as caught:
        gf.encode(given)
    assert one_line(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda wrong: gf.TopK(wrong),
        lambda wrong: gf.HardThreshold(wrong),
        lambda wrong: gf.GammaFedHT(wrong),
        lambda wrong: gf.GammaFedHT(0.1, alpha=wrong),
        lambda wrong: gf.PaperLevel(wrong),
        lambda wrong: gf.Limits(entries=wrong),
        lambda wrong: gf.Limits(payload_bytes=wrong),
        lambda wrong: gf.Limits(norm=wrong),
        lambda wrong: gf.Limits(weight=wrong),
        lambda wrong: gf.Constant(wrong),
        lambda wrong: gf.InverseDecay(1, wrong),
        lambda wrong: gf.threshold_for(wrong, 10),
    ],
    ids=range(12),
)
@pytest.mark.parametrize("wrong", ["0.1", [0.1], {}, True, 1j, float("nan"), object], ids=repr)
def test_a_value_of_a_wrong_type_is_refused_in_one_line(make: Callable[[Any], Any], wrong: Any) -> None:
    with pytest.raises(gf.InputError, match="got") as caught:
        make(wrong)
    assert "\n" not in str(caught.value)


def test_numbers_of_numpy_are_numbers() -> None:
    assert gf.TopK(np.int64(3)) == gf.TopK(3)  # type: ignore[arg-type]
    assert gf.Limits(entries=np.int64(3), norm=np.float32(2)) == gf.Limits(entries=3, norm=2.0)  # type: ignore[arg-type]
    assert gf.HardThreshold(np.float32(0.5)).value == 0.5  # type: ignore[arg-type]

"""The precision of values that are sent as they are."""

from typing import Literal

from gammafl.core.errors import InputError
from gammafl.core.values import Exact, Half, Values

Precision = Literal["f32", "f16"]
PRECISIONS: dict[str, Values] = {"f32": Exact(), "f16": Half()}


def values_of(precision: Precision) -> Values:
    """The form of values of that name."""
    if precision not in PRECISIONS:
        raise InputError(f"values must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    return PRECISIONS[precision]

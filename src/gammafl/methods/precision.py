"""Precisions of values by their names in a method's settings."""

from typing import Literal

from gammafl.core.errors import InputError
from gammafl.core.values import BFloat, Bits, Exact, Half, Values

Precision = Literal["f32", "f16", "bf16", "8bit", "4bit", "2bit"]
PRECISIONS: dict[str, Values] = {
    "f32": Exact(),
    "f16": Half(),
    "bf16": BFloat(),
    "8bit": Bits(8),
    "4bit": Bits(4),
    "2bit": Bits(2),
}


def values_of(precision: Precision) -> Values:
    """The rounding with this name."""
    if precision not in PRECISIONS:
        raise InputError(f"values must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    return PRECISIONS[precision]

"""Compressors, thresholds and stepsizes as JSON: they are frozen values, so that what one side uses can be told to
the other, and two of them are equal if their descriptions are."""

import json
from dataclasses import fields, is_dataclass
from typing import Any

from gammafl.core.compressors import Compressor, Dense, DenseTail, Half, HardThreshold, Ternary, TopK
from gammafl.core.errors import InputError
from gammafl.core.stepsizes import Constant, ExponentialDecay, InverseDecay
from gammafl.core.thresholds import Fixed, InGradientUnits, StepsizeAware

KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        *(Dense, HardThreshold, TopK, Ternary, Half, DenseTail),
        *(Fixed, StepsizeAware, InGradientUnits),
        *(InverseDecay, ExponentialDecay, Constant),
    )
}
"""All that is ever made from a description: one from elsewhere can name nothing else."""


def describe(method: Compressor) -> str:
    """One line of JSON that `build` makes the same compressor from."""
    return json.dumps(_table(method), sort_keys=True)


def build(description: str) -> Compressor:
    """The compressor that `describe` described; `InputError` if it is none."""
    try:
        method = _value(json.loads(description))
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(f"not the description of a compressor ({error}): {description[:200]}") from None
    if not isinstance(method, Compressor):
        raise InputError(f"not the description of a compressor: {description[:200]}")
    return method


def _table(value: Any) -> Any:
    if is_dataclass(value) and type(value).__name__ in KINDS:
        return {"kind": type(value).__name__} | {f.name: _table(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, str | int | float):
        return value
    raise InputError(f"{value!r} can't be described to clients; use one of {', '.join(KINDS)}")


def _value(table: Any) -> Any:
    if isinstance(table, dict):
        kind = table.pop("kind", None)
        if kind not in KINDS:
            raise InputError(f"no kind {kind!r}; install the same gammafl on server and clients")
        return KINDS[kind](**{name: _value(part) for name, part in table.items()})
    return tuple(table) if isinstance(table, list) else table

"""What clients are sent of the model, as a user names it."""

from typing import Any, Literal

from gammafl.core.errors import InputError, require
from gammafl.core.levels import RunLevel
from gammafl.core.method import Method, Setting
from gammafl.methods.registry import resolve

Way = Literal["full", "changes"] | Method
"""The whole model, its values where it changed, or what a method keeps of the difference to what clients hold."""


def way_down(value: Any, **defaults: Setting) -> Way:
    """The way that a user means; `defaults` are for the name of a method, as in `resolve`.

    >>> way_down("changes"), way_down("top-k", keep=0.01)
    ('changes', Method(TopK(k=0.01, scope='global')))
    """
    if isinstance(value, str) and value in ("full", "changes"):
        return "full" if value == "full" else "changes"
    try:
        way = resolve(value, **defaults)
    except InputError as error:
        raise InputError(f"downlink is 'full', 'changes' or a method: {error}") from None
    check_way(way)
    return way


def check_way(way: Way) -> None:
    """Refuses a method that the way down can't have."""
    steered = isinstance(way, Method) and isinstance(way.level, RunLevel)
    require(not steered, "level 'run' steers what clients send; give the way down level='upload'")

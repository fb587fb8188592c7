"""What clients are sent of the model, as a user names it."""

from typing import Any, Literal

from gammafl.core.errors import InputError, require
from gammafl.core.levels import RunLevel
from gammafl.core.method import Method, Setting
from gammafl.methods.registry import resolve

Way = Literal["full", "changes"] | Method
"""The whole model, its values where it changed, or what a method keeps of the difference to what clients hold."""


MORE = 4.0
"""The way down keeps so many times what the way up keeps, where nothing else is said: a round adds up what several
clients sent, at different places. docs/downlink.md has what was measured."""


def way_down(value: Any, keep: float, **defaults: Setting) -> Way:
    """The way that a user means.

    `keep` is what the way up keeps, for a method that does not say what it keeps; `defaults` are for the name of a
    method, as in `resolve`.

    >>> way_down("changes", keep=0.01), way_down("top-k", keep=0.01), way_down("top-k:keep=0.02", keep=0.01)
    ('changes', Method(TopK(k=0.04, scope='global')), Method(TopK(k=0.02, scope='global')))
    """
    if isinstance(value, str) and value in ("full", "changes"):
        return "full" if value == "full" else "changes"
    try:
        way = resolve(value, keep=min(1.0, MORE * keep), **defaults)
    except InputError as error:
        raise InputError(f"downlink is 'full', 'changes' or a method: {error}") from None
    check_way(way)
    return way


def check_way(way: Way) -> None:
    """Refuses a method that the way down can't have."""
    steered = isinstance(way, Method) and isinstance(way.level, RunLevel)
    require(not steered, "level 'run' steers what clients send; give the way down level='upload'")
    remembers = isinstance(way, Method) and way.memory.commits
    require(not remembers, f"the way down remembers what it did not send, and no more than that: {way} can't be it")

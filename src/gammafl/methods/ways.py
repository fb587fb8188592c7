"""What clients are sent of the model, as a user writes it."""

from typing import Any, Literal

from gammafl.core.errors import InputError, require
from gammafl.core.levels import RunLevel
from gammafl.core.method import Method, Setting
from gammafl.methods.registry import resolve

Way = Literal["full", "changes"] | Method
"""The whole model, the values that changed, or the compressed difference to the model that clients hold."""


MORE = 4.0
"""By default, the downlink keeps this many times the fraction of the uplink, since a round adds up uploads of several
clients, with different positions. docs/downlink.md has the measurements."""


def way_down(value: Any, keep: float, **defaults: Setting) -> Way:
    """`value` as a way.

    keep       the kept fraction of the uplink, for a method that does not set its own
    defaults   for the name of a method, as in `resolve`

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
    """Refuses a method that can't be used for the downlink."""
    steered = isinstance(way, Method) and isinstance(way.level, RunLevel)
    require(not steered, "level 'run' steers what clients send; give the downlink's method level='upload'")
    remembers = isinstance(way, Method) and way.memory.commits
    require(
        not remembers, f"{way} has a memory that a downlink can't have: choose a method with error feedback or none"
    )

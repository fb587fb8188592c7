"""Scopes: the vector is compressed as a whole, or each tensor of the model separately."""

from gammafl.core.compressors import Scope
from gammafl.core.errors import require
from gammafl.core.moment import Moment


def require_scope(scope: Scope) -> None:
    """Raises an error if `scope` is not a scope."""
    require(scope in ("global", "tensor"), f"scope must be 'global' or 'tensor', got {scope!r}")


def parts_in(scope: Scope, dim: int, moment: Moment) -> tuple[int, ...]:
    """The lengths of the parts of a vector of `dim` elements.

    >>> parts_in("global", 8, Moment())
    (8,)
    """
    if scope == "global":
        return (dim,)
    sizes = moment.tensors.sizes
    require(sum(sizes) == dim, f"the tensor sizes add up to {sum(sizes)}, but the vector has {dim} elements")
    return sizes

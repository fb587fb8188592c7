"""The limits of one upload: they bound how far one client can move the model.

The server refuses an upload that exceeds them. It tells clients the limits: a client keeps to them and sends the rest
later. Otherwise a refused upload would return to its residual, and the next one would be even larger.
"""

import math
from dataclasses import dataclass, replace
from numbers import Integral

import numpy as np

from gammafl.core.errors import WireError, require
from gammafl.core.inputs import is_number
from gammafl.core.sparse import SparseUpdate

MESSAGE_OVERHEAD = 64
"""An upper bound of the bytes of a message besides its positions and values."""

LARGEST_ENTRY = 8
"""Bytes of an entry in the largest coding: a raw position and a float32."""

SMALLEST_NORM = 1e-30
"""No norm may be bounded by less: what is sent in whole numbers can't be scaled below 128·2⁻¹⁴⁹·√2³², about 1e-38."""


@dataclass(frozen=True)
class Limits:
    """The largest accepted upload. A limit that is unset follows from the model's size.

    payload_bytes   the most bytes of the message
    entries         the most kept values
    norm            the largest Euclidean norm
    weight          the largest weight, if clients send their weight
    learnt_norm     a factor: the largest norm is this times the clients' median norm, which the server learns

    >>> Limits(entries=1000, norm=5.0).norm
    5.0
    """

    payload_bytes: int | None = None
    entries: int | None = None
    norm: float | None = None
    weight: float | None = None
    """The largest weight, if clients send their weight."""

    learnt_norm: float | None = None
    """A factor: the largest norm is this times the clients' median norm (`federated/norms.py`), and at most `norm` if
    both are set."""

    def __post_init__(self) -> None:
        counts = {"payload_bytes": self.payload_bytes, "entries": self.entries}
        for name, count in counts.items():
            whole = count is None or (isinstance(count, Integral) and is_number(count) and count >= 1)
            require(whole, f"limits: {name} must be a whole number of at least 1, got {count!r}")
            object.__setattr__(self, name, None if count is None else int(count))
        for name, most in {"norm": self.norm, "weight": self.weight}.items():
            positive = most is None or (is_number(most) and most > 0)
            require(positive, f"limits: {name} must be a positive number, got {most!r}")
            object.__setattr__(self, name, None if most is None else float(most))
        tiny = self.norm is not None and self.norm < SMALLEST_NORM
        require(not tiny, f"limits: norm must be at least {SMALLEST_NORM}, got {self.norm!r}")
        factor = self.learnt_norm
        above = factor is None or (is_number(factor) and 1 < factor < math.inf)
        require(above, f"limits: learnt_norm is a factor above 1, such as 4: times the median norm; got {factor!r}")
        object.__setattr__(self, "learnt_norm", None if factor is None else float(factor))

    @property
    def scales(self) -> bool:
        """Whether a client may have to scale its upload down."""
        return self.norm is not None or self.learnt_norm is not None

    def within(self, most: "Limits") -> "Limits":
        """The stricter of both limits, for bytes, entries and norm each."""
        pairs = {name: (getattr(self, name), getattr(most, name)) for name in ("payload_bytes", "entries", "norm")}
        return replace(
            self, **{name: min(set(both) - {None}, default=None) for name, both in pairs.items() if both[1] is not None}
        )

    def check(self, payload: bytes, dim: int) -> None:
        """Refuses an upload by its size, before it is decoded."""
        most = MESSAGE_OVERHEAD + LARGEST_ENTRY * dim if self.payload_bytes is None else self.payload_bytes
        if len(payload) > most:
            raise WireError(f"an upload of {len(payload)} bytes, but {most} are allowed")

    def check_update(self, update: SparseUpdate) -> None:
        if self.entries is not None and len(update) > self.entries:
            raise WireError(f"{len(update)} entries, but {self.entries} are allowed")
        if self.norm is not None and (norm := norm_of(update)) > self.norm:
            raise WireError(f"an update of norm {norm:.3g}, but {self.norm:.3g} is allowed")

    def fit(self, update: SparseUpdate) -> SparseUpdate:
        """The update within `entries` and `norm`: its largest entries, and parts sent whole if they fit; scaled."""
        if self.entries is not None and len(update) > self.entries:
            whole = update.whole if update.whole <= self.entries else 0
            head = len(update) - whole
            largest = np.argsort(-np.abs(update.values[:head]), kind="stable")[: self.entries - whole]
            kept = np.concatenate([np.sort(largest), np.arange(head, len(update))])
            update = SparseUpdate(update.dim, update.indices[kept], update.values[kept], whole)
        if self.norm is not None and (norm := norm_of(update)) > self.norm:
            scale = float(np.float32(self.norm / norm * (1 - 1e-6)))  # so that rounding does not exceed the limit again
            scaled = update.scaled(scale)
            while norm_of(scaled) > self.norm:  # near float32's smallest numbers, rounding errors are larger
                scale *= 0.5
                scaled = update.scaled(scale)
            update = scaled
        return update


NO_LIMITS = Limits()


def norm_of(update: SparseUpdate) -> float:
    """The Euclidean norm."""
    return float(np.linalg.norm(update.values.astype(np.float64)))

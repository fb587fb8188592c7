"""An upper bound of a message's length, from the number of its entries. `core/wire.py` has the format.

n positions below d: the gaps add up to at most d − n, so the mean gap g is at most G = (d − n)/n. `golomb.plan` starts
with the parameter b = L + δ, where L = log2(g·ln 2 + 1) and |δ| ≤ ½, and only improves it. Its codes take

    n·(b + 1) + Σ⌊gap/2^b⌋ ≤ n·(L + 1 + δ + 2^−δ/ln 2) ≤ n·(log2(G·ln 2 + 1) + 2.5404)   bits,

since the term in δ is convex and largest at δ = −½, and L grows with g. A bitmap takes d bits, raw positions 32·n.
`interpolative.most_bytes` has the bound of the interpolative code. `encode` uses it only if it is shorter than these.

A key that draws positions is never longer than the positions: `encode` chooses the shortest coding.

Values: `encode` never takes more bytes than the coding that can always hold them (`Values.most_bytes`). Tensors that
are sent whole have no positions, and take four bytes per value.
"""

import math
from dataclasses import dataclass, field

from gammafl.core import interpolative
from gammafl.core.layout import Layout
from gammafl.core.method import Method
from gammafl.core.moment import Moment
from gammafl.core.values import Exact, Values
from gammafl.core.wire import PositionCoding, header_bytes

RICE_EXTRA = 2.5405
"""The largest value of 1 + δ + 2^−δ/ln 2, rounded up."""


def position_bytes(dim: int, count: int, coding: PositionCoding = "auto") -> int:
    """An upper bound of the bytes for `count` positions below `dim`."""
    bits = count * (math.log2((dim - count) / count * math.log(2) + 1) + RICE_EXTRA) if count else 0.0
    sizes = {"rice": 1 + math.ceil(bits / 8), "bitmap": -(-dim // 8), "raw": 4 * count}
    if coding == "interpolative":
        return interpolative.most_bytes(dim, count)
    return min(sizes.values()) if coding == "auto" else sizes[coding]


@dataclass(frozen=True)
class MessageForm:
    """Facts about all messages of a method, known before they are made.

    >>> from gammafl.core.values import Ternary
    >>> form = MessageForm(dim=1000, values=Ternary())
    >>> form.most_bytes(10), form.most_entries(40), form.most_bytes(form.most_entries(40))
    (28, 23, 40)
    """

    dim: int
    whole: int = 0
    """How many elements at the end are sent whole."""

    values: Values = field(default_factory=Exact)
    """How the other values are rounded."""

    parts: int = 1
    """The number of parts of the vector with their own magnitude, if the coding is ternary."""

    positions: PositionCoding = "auto"

    @classmethod
    def of(
        cls, method: Method, layout: Layout, positions: PositionCoding = "auto", scaled: bool = False
    ) -> "MessageForm":
        """The form of a method's uploads. `scaled`: values may be multiplied by a number after rounding."""
        values = Exact() if scaled and method.values.coding in ("f16", "bf16") else method.values
        parts = len(method.compressor.parts(layout.dim - layout.tail, Moment(layout=layout)))
        return cls(layout.dim, layout.tail, values, parts, positions)

    @property
    def smallest(self) -> int:
        """An upper bound of the bytes of a message with only what can't be left out."""
        return self.most_bytes(0)

    def most_bytes(self, count: int) -> int:
        """An upper bound of the bytes of a message with `count` entries and the tensors that are sent whole."""
        positions = position_bytes(self.dim - self.whole, count, self.positions)
        values = self.values.most_bytes(count, self.parts) + 4 * self.whole
        return header_bytes(self.dim, count, self.whole) + positions + values

    def most_entries(self, most_bytes: float) -> int:
        """The largest count of entries for which a message always fits into `most_bytes`; 0 if none does."""
        low, high = 0, self.dim - self.whole
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.most_bytes(middle) <= most_bytes else (low, middle - 1)
        return low

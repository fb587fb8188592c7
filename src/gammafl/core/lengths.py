"""An upper bound of a message's length, from the number of its entries alone; `core/wire.py` has the format.

Positions, n of d: the gaps add up to at most d − n, so that the mean gap g is at most G = (d − n)/n. `golomb.plan`
starts from the parameter b = L + δ with L = log2(g·ln 2 + 1) and |δ| ≤ ½, and from there only improves. Its codes take

    n·(b + 1) + Σ⌊gap/2^b⌋ ≤ n·(L + 1 + δ + 2^−δ/ln 2) ≤ n·(log2(G·ln 2 + 1) + 2.5404)   bits,

since the term in δ is convex and largest at δ = −½, and L grows with g. A bitmap takes d bits, raw positions 32·n.
`interpolative.most_bytes` has the bound of the other code; `encode` takes it only where it is shorter than these.

A key that draws positions is never longer than they are: `encode` takes the shortest.

Values: those that one coding can always hold take no more than that coding does (`Values.most_bytes`). Tensors that are
sent whole have no positions, and take four bytes a value.
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
    """No `count` positions below `dim` take more."""
    bits = count * (math.log2((dim - count) / count * math.log(2) + 1) + RICE_EXTRA) if count else 0.0
    sizes = {"rice": 1 + math.ceil(bits / 8), "bitmap": -(-dim // 8), "raw": 4 * count}
    if coding == "interpolative":
        return interpolative.most_bytes(dim, count)
    return min(sizes.values()) if coding == "auto" else sizes[coding]


@dataclass(frozen=True)
class MessageForm:
    """What is known of all messages of a method before they are made.

    >>> from gammafl.core.values import Ternary
    >>> form = MessageForm(dim=1000, values=Ternary())
    >>> form.most_bytes(10), form.most_entries(40), form.most_bytes(form.most_entries(40))
    (28, 23, 40)
    """

    dim: int
    whole: int = 0
    """Elements at the end that are sent whole."""

    values: Values = field(default_factory=Exact)
    """How all other values are rounded."""

    parts: int = 1
    """Parts of the vector that have a magnitude of their own, where the coding is ternary."""

    positions: PositionCoding = "auto"

    @classmethod
    def of(
        cls, method: Method, layout: Layout, positions: PositionCoding = "auto", scaled: bool = False
    ) -> "MessageForm":
        """Of a method's uploads. `scaled`: values may be multiplied by a number after they are rounded."""
        values = Exact() if scaled and method.values.coding in ("f16", "bf16") else method.values
        parts = len(method.compressor.parts(layout.dim - layout.tail, Moment(layout=layout)))
        return cls(layout.dim, layout.tail, values, parts, positions)

    @property
    def smallest(self) -> int:
        """The most that a message takes without any entry that could be left out."""
        return self.most_bytes(0)

    def most_bytes(self, count: int) -> int:
        """No message with `count` entries, beside the tensors that are sent whole, is longer."""
        positions = position_bytes(self.dim - self.whole, count, self.positions)
        values = self.values.most_bytes(count, self.parts) + 4 * self.whole
        return header_bytes(self.dim, count, self.whole) + positions + values

    def most_entries(self, most_bytes: float) -> int:
        """The largest count whose messages never take more bytes than that; 0 if there is none."""
        low, high = 0, self.dim - self.whole
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.most_bytes(middle) <= most_bytes else (low, middle - 1)
        return low

"""Values that a compressor has rounded itself, because its rounding and its choice are one."""

from dataclasses import dataclass

from gammafl.core.values import Exact


@dataclass(frozen=True)
class OneMagnitude(Exact):
    """±one magnitude in each part of the vector: the wire sends a bit for each value.

    paper_bits   2 where an entry may also be left out, as the paper counts STC; 1 where every entry is sent
    """

    paper_bits: int = 2
    coding = "ternary"

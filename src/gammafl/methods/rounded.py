"""Values that the compressor itself has rounded, since it rounds and chooses entries in one step."""

from dataclasses import dataclass

from gammafl.core.values import Exact


@dataclass(frozen=True)
class OneMagnitude(Exact):
    """Values with one magnitude per part of the vector. A message has one bit for each value.

    paper_bits   2 if entries may be left out, as the paper counts for STC; 1 if every entry is sent
    """

    paper_bits: int = 2
    coding = "ternary"

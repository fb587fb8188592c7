"""The width of the processor's vectors, as the compiler knows it."""

import os
from dataclasses import dataclass
from functools import cache

from llvmlite import binding


@dataclass(frozen=True)
class Vectors:
    """The float32 numbers in a vector, and the number of vector registers."""

    lanes: int
    registers: int

    @property
    def pixels(self) -> int:
        """How many pixels' sums, two vectors each, fit into the registers together with three other vectors."""
        return 12 if self.registers >= 32 else 6

    @property
    def sums(self) -> int:
        """How many vectors of a gradient's sums are in registers at a time."""
        return 24 if self.registers >= 32 else 12


@cache
def vectors() -> Vectors | None:
    """The vectors of this machine; None if it has no fused multiply-add for vectors.

    It uses numba's own settings: NUMBA_CPU_NAME=generic compiles for any processor, and NUMBA_CPU_FEATURES sets the
    features.
    """
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return None
    named, listed = os.environ.get("NUMBA_CPU_NAME"), os.environ.get("NUMBA_CPU_FEATURES")
    if listed is not None:
        has = {word[1:] for word in listed.split(",") if word.startswith("+")}
    elif named == "generic":
        has = set()
    else:
        has = {name for name, there in binding.get_host_cpu_features().items() if there}
    return widest(has, binding.get_default_triple())


def widest(features: set[str], triple: str) -> Vectors | None:
    """The vectors of a processor with these features, in LLVM's names."""
    if triple.startswith(("aarch64", "arm64")):
        return Vectors(4, 32)  # every such processor has NEON
    if "avx512f" in features:
        return Vectors(16, 32)
    if {"avx2", "fma"} <= features:
        return Vectors(8, 16)
    return None

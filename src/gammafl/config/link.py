"""A link between a client and the server, as a user writes it.

    1 Mbit/s up, 10 Mbit/s down, 50 ms, 0.5 s compute
    256 kbit/s                                           both ways, without latency

It sets a virtual clock (`federated/link.py`) and changes nothing else in a run.
"""

import math
import re
from dataclasses import dataclass

from gammafl.core.errors import InputError, require
from gammafl.core.inputs import is_number

PREFIXES = {"g": 1e9, "m": 1e6, "k": 1e3, "": 1.0}
NUMBER = r"(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)"
RATE = re.compile(NUMBER + r"\s*([kKmMgG]?)([bB]it|B)(?:/s)?")
DURATION = re.compile(NUMBER + r"\s*(ms|s|min)")
DURATIONS = {"ms": 1e-3, "s": 1.0, "min": 60.0}
EXAMPLE = "1 Mbit/s up, 10 Mbit/s down, 50 ms"
WORDS = {
    "up_bits_per_second": "the speed up",
    "down_bits_per_second": "the speed down",
    "latency_seconds": "the latency",
    "compute_seconds": "the compute time",
}


@dataclass(frozen=True)
class Link:
    """The link between a client and the server, and the client's compute time per round.

    up_bits_per_second     the speed from the client to the server
    down_bits_per_second   the speed from the server to the client
    latency_seconds        the latency, one way
    compute_seconds        the client's time per round for training and compression

    >>> link = Link.parse("1 Mbit/s up, 8 Mbit/s down, 250 ms")
    >>> link.seconds(down_bytes=1_000_000, up_bytes=125_000)
    2.5
    >>> str(link)
    '1 Mbit/s up, 8 Mbit/s down, 250 ms'
    """

    up_bits_per_second: float
    down_bits_per_second: float
    latency_seconds: float = 0.0
    """The latency, one way."""

    compute_seconds: float = 0.0
    """The client's time per round for training and compression."""

    def __post_init__(self) -> None:
        for name in ("up_bits_per_second", "down_bits_per_second"):
            value = getattr(self, name)
            fits = is_number(value) and 1 <= value < math.inf
            require(fits, f"{name} of a link must be a number of at least 1, got {value!r}")
        for name in ("latency_seconds", "compute_seconds"):
            value = getattr(self, name)
            fits = is_number(value) and 0 <= value < math.inf
            require(fits, f"{name} of a link must be a number of at least 0, got {value!r}")

    @classmethod
    def parse(cls, text: str) -> "Link":
        """The link that `text` describes: speeds `up` and `down` or one for both, a latency, a `compute` time."""
        found: dict[str, float] = {}
        for part in text.split(","):
            for name, value in _read(part.strip(), text).items():
                require(name not in found, f"link {text!r} gives {WORDS[name]} twice")
                found[name] = value
        for name in ("up_bits_per_second", "down_bits_per_second"):
            require(name in found, f"link {text!r} does not give {WORDS[name]}; write for example {EXAMPLE!r}")
        return cls(**found)

    def seconds(self, down_bytes: float, up_bytes: float) -> float:
        """The seconds from the beginning of a round to the arrival of the upload: down, compute, up."""
        down, up = 8 * down_bytes / self.down_bits_per_second, 8 * up_bytes / self.up_bits_per_second
        return (self.latency_seconds + down) + self.compute_seconds + (self.latency_seconds + up)

    def of(self, client: int, round_number: int) -> "Link":
        """The link of a client in a round: always this one."""
        return self

    def require_clients(self, count: int) -> None:
        """Does nothing: all clients have this link."""

    def __str__(self) -> str:
        parts = [f"{show_rate(self.up_bits_per_second)} up", f"{show_rate(self.down_bits_per_second)} down"]
        parts += [_show_duration(self.latency_seconds)] if self.latency_seconds else []
        return ", ".join(parts + ([f"{_show_duration(self.compute_seconds)} compute"] if self.compute_seconds else []))


def show_rate(bits_per_second: float) -> str:
    """'1 Mbit/s': a text that `Link.parse` reads as the same number."""
    for prefix, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        short = f"{bits_per_second / scale:.6g}"
        if bits_per_second >= scale and float(short) * scale == bits_per_second:
            return f"{short} {prefix}bit/s"
    return f"{bits_per_second!r} bit/s"


def _show_duration(seconds: float) -> str:
    short = f"{seconds * 1e3:.6g}"
    return f"{short} ms" if seconds < 1 and float(short) * DURATIONS["ms"] == seconds else f"{seconds!r} s"


def _read(part: str, text: str) -> dict[str, float]:
    """Field → number, from one part of a link's text."""
    value, _, what = part.rpartition(" ") if part.endswith((" up", " down", " latency", " compute")) else (part, "", "")
    if what in ("", "up", "down") and (rate := RATE.fullmatch(value.strip())):
        directions = ("up", "down") if not what else (what,)
        return dict.fromkeys((f"{direction}_bits_per_second" for direction in directions), rate_of(rate))
    if what in ("", "latency", "compute") and (duration := DURATION.fullmatch(value.strip())):
        return {f"{what or 'latency'}_seconds": duration_of(duration)}
    raise InputError(
        f"link {text!r}: {part!r} is neither a speed, such as 1 Mbit/s or 64 kB/s, nor a time, such as 50 ms or 0.5 s"
        f" compute; write for example {EXAMPLE!r}"
    )


def rate_of(found: re.Match[str]) -> float:
    number, prefix, unit = found.groups()
    return float(number) * PREFIXES[prefix.lower()] * (8 if unit == "B" else 1)


def duration_of(found: re.Match[str]) -> float:
    return float(found[1]) * DURATIONS[found[2]]

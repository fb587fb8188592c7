"""The virtual clock: how long a run would take over given links, computed from the bytes that it really sent.

A synchronous round lasts as long as its slowest client: latency, its download, its compute time, latency, its upload.
The server waits for every client to which it sent the model, also if the upload does not count. It does not wait for
clients that it could not reach. The server's own time is not counted.
"""

import math
from collections.abc import Iterable, Mapping

from gammafl.config.link_trace import Links
from gammafl.core.errors import require
from gammafl.federated.records import Summary


def round_seconds(links: Links, round_number: int, down_bytes: Mapping[int, int], up_bytes: Mapping[int, int]) -> float:
    """Seconds of round `round_number`; the first round is 1.

    down_bytes   client → bytes that it was sent, for clients that were reached
    up_bytes     client → bytes of the upload that it made

    >>> from gammafl.config.link import Link
    >>> round_seconds(Link.parse("1 Mbit/s"), 1, {0: 125_000, 1: 125_000}, {0: 250_000, 1: 125})
    3.0
    """
    return max(
        (links.of(client, round_number).seconds(down, up_bytes.get(client, 0)) for client, down in down_bytes.items()),
        default=0.0,
    )


def seconds_to(curve: Iterable[tuple[float, float]], target: float, higher_is_better: bool = True) -> float | None:
    """The seconds of the first pair (seconds, metric) that reaches `target`; None if none does.

    >>> seconds_to([(10.0, 0.5), (20.0, 0.8)], 0.75), seconds_to([(10.0, 0.5)], 0.9)
    (20.0, None)
    """
    return next((when for when, m in curve if (m >= target if higher_is_better else m <= target)), None)


def within(reached: float, higher_is_better: bool = True, share: float = 0.01) -> float:
    """A target for `seconds_to`: within 1% of the metric that another run `reached`.

    >>> within(80.0), within(80.0, higher_is_better=False)
    (79.2, 80.8)
    """
    return reached - share * abs(reached) if higher_is_better else reached + share * abs(reached)


def measured_compute(summary: Summary) -> float:
    """Seconds that a client of the run computed per round, for training and compression, measured on this machine.

    It is a mean over all clients and rounds. Run with `threads=1`, since clients that train in parallel share the time.
    A run does not use it for its own clock, which would then differ between machines. Give it to the next run as
    `Link(…, compute_seconds=…)`.
    """
    return (summary.training_seconds + summary.compression_seconds) / (summary.rounds * summary.participants)


def break_even(saved_bytes: float, extra_seconds: float) -> float:
    """The link speed in bits per second above which compression costs more time than it saves.

    saved_bytes     the bytes per round that a client saves
    extra_seconds   the time per round for compressing and decoding; if it is 0, the speed is infinite

    >>> break_even(saved_bytes=800_000, extra_seconds=0.016)
    400000000.0
    """
    require(saved_bytes >= 0, f"saved_bytes must be at least 0, got {saved_bytes!r}")
    return 8 * saved_bytes / extra_seconds if extra_seconds > 0 else math.inf

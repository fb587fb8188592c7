"""The demo's relay: what comes out of it is what went in, and a bucket lets no more through than its link."""

import importlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

import gammafl as gf

ROOT = Path(__file__).parents[2]
LOOPBACK = "127.0.0.1"
SIZE = 300_000


@pytest.fixture(scope="module")
def traffic() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "examples" / "flower_app"))
        yield importlib.import_module("traffic")


gaps = some.lists(some.tuples(some.floats(0, 0.5), some.integers(1, 5000)), min_size=1, max_size=50)


@given(gaps, some.floats(1e3, 1e8))
def test_a_bucket_lets_no_more_through_than_its_speed_and_what_it_saved_up(
    traffic: Any, sent: list[tuple[float, int]], speed: float
) -> None:
    """Between the first reading of the clock and any departure."""
    bucket, now, size = traffic.Bucket(speed), 100.0, 0
    for gap, length in sent:
        now, size = now + gap, size + length
        left = bucket.leaves(now, length)
        assert 8 * size <= speed * (left - 100 + traffic.BURST_SECONDS) * (1 + 1e-9) + 1e-3
        assert left >= now - traffic.BURST_SECONDS


@given(some.lists(some.integers(1, 5000), min_size=1, max_size=50), some.floats(1e3, 1e8))
def test_what_is_there_at_once_leaves_at_the_speed_of_the_link(traffic: Any, sizes: list[int], speed: float) -> None:
    bucket = traffic.Bucket(speed)
    left = [bucket.leaves(5.0, size) for size in sizes]
    assert left == sorted(left)
    assert left[-1] - (5 - traffic.BURST_SECONDS) == pytest.approx(8 * sum(sizes) / speed)


def test_connections_that_share_a_bucket_share_its_speed(traffic: Any) -> None:
    bucket = traffic.Bucket(8000)
    mine = [bucket.leaves(0.0, 1000) for _ in range(2)]
    yours = bucket.leaves(0.0, 1000)
    assert yours - mine[-1] == pytest.approx(1.0)


@pytest.mark.parametrize("link", [None, "1 Gbit/s", "1 Gbit/s up, 500 Mbit/s down, 1 ms"])
def test_what_comes_out_of_the_relay_is_what_went_in_and_is_counted(traffic: Any, link: str | None) -> None:
    rng = np.random.default_rng(0)
    up, down = rng.bytes(SIZE), rng.bytes(SIZE + 1)
    with socket.create_server((LOOPBACK, 0)) as server, traffic.Forwarder(server.getsockname()[1]) as relay:
        relay.shape(None if link is None else gf.Link.parse(link))
        inside = socket.create_connection((LOOPBACK, relay.port))
        outside, _ = server.accept()
        with inside, outside:
            results = exchange((inside, up), (outside, down))
        assert results == [down, up]
        assert relay.reset() == (len(up), len(down))
        assert relay.reset() == (0, 0)


def test_closing_the_relay_wakes_whoever_waits_on_a_link_that_takes_days(traffic: Any) -> None:
    with socket.create_server((LOOPBACK, 0)) as server, traffic.Forwarder(server.getsockname()[1]) as relay:
        relay.shape(gf.Link.parse("1 bit/s, 1 min"))
        inside = socket.create_connection((LOOPBACK, relay.port))
        outside, _ = server.accept()
        inside.sendall(bytes(10_000))
    with inside, outside:
        while outside.recv(1 << 16):
            pass


def exchange(*ends: tuple[socket.socket, bytes]) -> list[bytes]:
    """What each end reads, after it has sent what it has to say and said that this is all."""
    read: dict[int, bytes] = {}

    def say(end: socket.socket, text: bytes) -> None:
        end.sendall(text)
        end.shutdown(socket.SHUT_WR)

    def talk(number: int, end: socket.socket, text: bytes) -> None:
        writer = threading.Thread(target=say, args=(end, text))
        writer.start()
        parts = []
        while part := end.recv(1 << 16):
            parts.append(part)
        writer.join()
        read[number] = b"".join(parts)

    threads = [threading.Thread(target=talk, args=(i, *end)) for i, end in enumerate(ends)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [read[i] for i in range(len(ends))]

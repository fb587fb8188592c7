"""A relay between a SuperNode and the SuperLink: it counts the bytes on the sockets, and can slow the link down.

TLS passes unchanged. So the relay counts the bytes of a network card, without the headers of TCP and IP.
"""

import socket
import threading
import time
from contextlib import suppress
from queue import Queue
from typing import Self

from gammafl import Link

SLICE = 1 << 12
"""The most bytes that are passed on at a time: 33 ms at 1 Mbit/s."""

ON_THE_WAY = 1024
"""The most slices of one connection and direction on the way: 4 MB. With more, the relay stops reading."""

BURST_SECONDS = 0.02
"""The most seconds that an idle bucket saves. Without this, a thread that wakes up late would lose speed."""

WAKE_SECONDS = 0.2


class Bucket:
    """One direction of a thin link, for all connections that share it: a token bucket that is given the time.

    >>> bucket = Bucket(bits_per_second=8000)
    >>> [round(bucket.leaves(now, size=1000), 2) for now in (0.0, 0.5, 100.0)]
    [0.98, 1.98, 100.98]
    """

    def __init__(self, bits_per_second: float) -> None:
        self.bits_per_second = bits_per_second
        self._free = float("-inf")
        self._lock = threading.Lock()

    def leaves(self, now: float, size: int) -> float:
        """The time at which the last of `size` bytes has left, if they arrive at `now`."""
        with self._lock:
            self._free = max(self._free, now - BURST_SECONDS) + 8 * size / self.bits_per_second
            return self._free


class Forwarder:
    """Listens on `port` of loopback and forwards to `target`; `up` and `down` are bytes since the last `reset`."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.up = self.down = 0
        self._buckets: dict[str, Bucket] = {}
        self._latency = 0.0
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._sockets: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(WAKE_SECONDS)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def shape(self, link: Link | None) -> None:
        """From now on, all connections together have this link. None: full speed."""
        with self._lock:
            self._latency = link.latency_seconds if link else 0.0
            rates = {"up": link.up_bits_per_second, "down": link.down_bits_per_second} if link else {}
            self._buckets = {direction: Bucket(rate) for direction, rate in rates.items()}

    def reset(self) -> tuple[int, int]:
        """The bytes up and down since the last call."""
        with self._lock:
            counted, self.up, self.down = (self.up, self.down), 0, 0
        return counted

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()
        self._listener.close()
        with self._lock:
            for each in self._sockets:
                _shut(each)

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                inner, _ = self._listener.accept()
            except TimeoutError:
                continue
            try:
                outer = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                inner.close()
                continue
            inner.settimeout(None)
            with self._lock:
                self._sockets |= {inner, outer}
            threading.Thread(target=self._connection, args=(inner, outer), daemon=True).start()

    def _connection(self, inner: socket.socket, outer: socket.socket) -> None:
        back = threading.Thread(target=self._pump, args=(outer, inner, "down"), daemon=True)
        back.start()
        self._pump(inner, outer, "up")
        back.join()
        with self._lock:
            self._sockets -= {inner, outer}
            inner.close()
            outer.close()

    def _pump(self, source: socket.socket, sink: socket.socket, direction: str) -> None:
        """Reads at the speed of the link. Another thread delivers the bytes after the latency."""
        way: Queue[tuple[float, bytes]] = Queue(ON_THE_WAY)
        arriving = threading.Thread(target=self._deliver, args=(way, source, sink, direction), daemon=True)
        arriving.start()
        try:
            while data := source.recv(SLICE):
                with self._lock:
                    bucket, latency = self._buckets.get(direction), self._latency
                left = bucket.leaves(time.monotonic(), len(data)) if bucket else time.monotonic()
                self._wait_until(left)
                way.put((left + latency, data))
        except OSError:
            _shut(sink)
        way.put((0.0, b""))
        arriving.join()

    def _deliver(
        self, way: "Queue[tuple[float, bytes]]", source: socket.socket, sink: socket.socket, direction: str
    ) -> None:
        broken = False
        while (arrival := way.get())[1]:
            due, data = arrival
            if broken:
                continue  # until the reader notices it
            self._wait_until(due)
            try:
                sink.sendall(data)
                with self._lock:
                    setattr(self, direction, getattr(self, direction) + len(data))
            except OSError:
                broken = True
                _shut(source)
        _shut(sink, socket.SHUT_WR)  # the other direction may still send

    def _wait_until(self, moment: float) -> None:
        """Waits until `moment`, or until the relay closes."""
        if (seconds := moment - time.monotonic()) > 0:
            self._closing.wait(seconds)


def _shut(each: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    """Wakes threads that wait for the socket; to close it would not wake them."""
    with suppress(OSError):
        each.shutdown(how)

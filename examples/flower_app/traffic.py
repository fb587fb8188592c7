"""Bytes on the sockets, counted where they pass: a forwarder between the SuperNodes and the SuperLink.

TLS goes through unchanged, so that what is counted is what a network card would see, less TCP's and IP's headers.
"""

import socket
import threading
from contextlib import suppress
from typing import Self

CHUNK = 1 << 16
WAKE_SECONDS = 0.2


class Forwarder:
    """Listens on `port` of loopback and forwards to `target`; `up` and `down` are bytes since the last `reset`."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.up = self.down = 0
        self._lock = threading.Lock()
        self._open = True
        self._sockets: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(WAKE_SECONDS)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def reset(self) -> tuple[int, int]:
        """What went up and down since the last time."""
        with self._lock:
            counted, self.up, self.down = (self.up, self.down), 0, 0
        return counted

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open = False
        self._thread.join()
        self._listener.close()
        with self._lock:
            for each in self._sockets:
                _shut(each)

    def _accept(self) -> None:
        while self._open:
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
        try:
            while data := source.recv(CHUNK):
                sink.sendall(data)
                with self._lock:
                    setattr(self, direction, getattr(self, direction) + len(data))
        except OSError:
            _shut(source)
        _shut(sink)


def _shut(each: socket.socket) -> None:
    """Wakes whoever waits for it; closing alone would not."""
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)

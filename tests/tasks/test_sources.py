"""Downloads from a web server that answers badly, or not at all: one line each that says what happened."""

import http.server
import io
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import gammafl as gf
from gammafl.tasks.data import sources
from gammafl.tasks.data.sources import Web

CONTENT = b"the data"


class Handler(http.server.BaseHTTPRequestHandler):
    """What a server does depends on the path."""

    def do_GET(self) -> None:
        match self.path:
            case "/missing":
                self.send_error(404, "Not Found")
            case "/silent":
                self.server.leaving.wait()  # type: ignore[attr-defined]
            case "/endless":
                self.answer(None)
                while not self.wfile.closed:
                    self.wfile.write(CONTENT)
            case path:
                self.answer(len(CONTENT) + (path == "/short"))
                self.wfile.write(CONTENT)

    def answer(self, length: int | None) -> None:
        self.send_response(200)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """A client that went away is what the tests are about."""


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "*")
    with Server(("127.0.0.1", 0), Handler) as server:
        server.leaving = threading.Event()  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.leaving.set()  # type: ignore[attr-defined]
        server.shutdown()


def fetch(base: str, name: str, folder: Path) -> None:
    Web(base, (name,), most_bytes=1000).fetch(folder, lambda _: None)


def test_a_file_arrives(base: str, tmp_path: Path) -> None:
    fetch(base, "file", tmp_path)
    assert (tmp_path / "file").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("missing", "/missing answers 404 Not Found"),
        ("short", "/short ended after 8 of 9 bytes"),
        ("endless", "/endless is larger than 1000 bytes"),
        ("silent", "did not answer within 0.2 seconds"),
    ],
)
def test_a_bad_answer_is_one_clear_line(
    name: str, expected: str, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "silent":
        monkeypatch.setattr(sources, "SECONDS_TO_ANSWER", 0.2)
    with pytest.raises(gf.InputError) as failure:
        fetch(base, name, tmp_path)
    assert expected in str(failure.value)
    assert "\n" not in str(failure.value)


def test_a_bar_shows_a_download_on_a_terminal_and_nothing_in_a_pipe(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    for stream in (Terminal(), io.StringIO()):
        monkeypatch.setattr("sys.stderr", stream)
        fetch(base, "file", tmp_path)
        assert ("8/8 bytes" in stream.getvalue()) == stream.isatty()


def test_a_server_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(gf.InputError, match=r"^nowhere\.invalid can't be found: there is no network, or no such name$"):
        fetch("http://nowhere.invalid", "file", tmp_path)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, and nobody listens
        port = unused.getsockname()[1]
        with pytest.raises(gf.InputError, match=rf"^127\.0\.0\.1:{port} refuses the connection$"):
            fetch(f"http://127.0.0.1:{port}", "file", tmp_path)

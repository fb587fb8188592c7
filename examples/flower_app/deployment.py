"""A real Flower deployment on this machine: a SuperLink and SuperNodes as processes, with TLS and authentication.

with Deployment(directory, nodes=3) as deployment:
    deployment.run(app, {"num-server-rounds": 3}, seconds=300)

No process stays after the block. All processes have a mark in their environment. A guard process ends all processes
with the mark as soon as its input is closed: at the end of the block, after an exception, or when this process dies.
(Without /proc, Flower's own check of parent processes must be enough.)
"""

import json
import os
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from certificates import write_certificates, write_key_pair
from traffic import Forwarder

from gammafl import Link

MARK = "GAMMAFL_DEPLOYMENT"
START_SECONDS = 120
RESTART_SECONDS = 5
"""The time between two starts of one SuperNode, as with a service manager."""

CONNECTION = "deployment"
"""The name of the SuperLink in Flower's configuration."""


class DeploymentError(RuntimeError):
    """A process did not start, ended, or took too long. The message has the last lines of its log."""


@dataclass
class SuperNode:
    """One SuperNode, over all its starts."""

    partition: int
    log: Path
    process: "subprocess.Popen[bytes] | None" = None
    starts: int = 0
    started: float = 0.0
    log_start: int = 0

    @property
    def name(self) -> str:
        return f"node-{self.partition}"

    @property
    def dead(self) -> bool:
        return self.process is None or self.process.poll() is not None

    @property
    def up(self) -> bool:
        """Whether the SuperLink has accepted it since its last start."""
        return not self.dead and b"SuperNode ID: " in self.log.read_bytes()[self.log_start :]

    def kill(self) -> None:
        """Sends SIGKILL to it and to the processes that it started."""
        if self.process is not None and not self.dead:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Deployment:
    """A SuperLink and SuperNodes. `directory` has all files: keys, logs, Flower's homes, the clients' states."""

    def __init__(self, directory: Path, nodes: int, environment: Mapping[str, str] | None = None) -> None:
        self.directory = directory.absolute()
        self.nodes = [SuperNode(i, self.log_file(f"node-{i}")) for i in range(nodes)]
        self.environment = dict(environment or {})
        self.mark = secrets.token_hex(8)
        self.runs = 0
        self._processes: list[subprocess.Popen[bytes]] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._stack.callback(self._end)
        try:
            self._guard = subprocess.Popen(
                [sys.executable, __file__, self.mark], stdin=subprocess.PIPE, start_new_session=True
            )
            write_certificates(self.directory)
            self._start_link()
            self.relays = [self._stack.enter_context(Forwarder(self.port)) for _ in self.nodes]
            for node in self.nodes:
                _, public = write_key_pair(self.directory, f"{node.name}.key")
                self.flwr("supernode", "register", str(public), CONNECTION)
            self.wait_for_nodes()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _end(self) -> None:
        """Ends all processes of the deployment."""
        for process in self._processes:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._guard.communicate()

    # --- processes ----------------------------------------------------------------------------------------

    def log_file(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def start(self, name: str, *command: str, home: str = "home") -> "subprocess.Popen[bytes]":
        """Starts `command` of this environment in its own process group. Its output goes to `name`.log."""
        (self.directory / home).mkdir(exist_ok=True)
        variables = os.environ | {
            MARK: self.mark,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "FLWR_HOME": str(self.directory / home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
            "GAMMAFL_STATE": str(self.directory / "state" / home),
            "NO_PROXY": "127.0.0.1,localhost",
            "PYTHONUNBUFFERED": "1",
            "FORCE_COLOR": "",  # a notebook asks for colours, and what `flwr` says is to be read
        }
        program, *rest = command
        with self.log_file(name).open("ab") as log:
            process = subprocess.Popen(
                [str(Path(sys.executable).parent / program), *rest],
                cwd=self.directory, env=variables | self.environment, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self._processes.append(process)
        return process

    def flwr(self, *command: str, seconds: float = START_SECONDS) -> dict[str, Any]:
        """The result of `flwr COMMAND --format json`."""
        name = f"flwr-{command[0]}"
        log_start = self.log_file(name).stat().st_size if self.log_file(name).exists() else 0
        process = self.start(name, "flwr", *command, "--format", "json")
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise self.error(name, f"took more than {seconds:.0f} s") from None
        said = self.log_file(name).read_text()[log_start:]
        if code:
            raise self.error(name, f"ended with code {code}")
        answer: dict[str, Any] = json.loads(said[said.index("{") :])
        return answer

    def _start_link(self) -> None:
        self.port = free_port()
        self.start_link()

    def start_link(self) -> None:
        """Starts the SuperLink at its port with its database; again, if it died."""
        (self.directory / "home").mkdir(exist_ok=True)
        (self.directory / "home" / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\naddress = "127.0.0.1:{self.port}"\n'
            f"root-certificates = {json.dumps(str(self.directory / 'ca.crt'))}\n"
        )
        self.link = self.start(
            "superlink", "flower-superlink", "--host", "127.0.0.1", "--port", str(self.port),
            "--ssl-ca-certfile", "ca.crt", "--ssl-certfile", "server.crt", "--ssl-keyfile", "server.key",
            "--enable-supernode-auth", "--disable-runtime-dependency-installation", "--database", "superlink.db",
        )  # fmt: skip
        trusted = ssl.create_default_context(cafile=self.directory / "ca.crt")
        self._wait("superlink", lambda: _answers(f"https://127.0.0.1:{self.port}/health", trusted), START_SECONDS)

    def start_node(self, node: SuperNode) -> None:
        """Starts a SuperNode, with the same key each time."""
        node.log_start = node.log.stat().st_size if node.log.exists() else 0
        node.starts += 1
        node.started = time.monotonic()
        node.process = self.start(
            node.name, "flower-supernode", "--superlink", f"127.0.0.1:{self.relays[node.partition].port}",
            "--root-certificates", "ca.crt", "--auth-supernode-private-key", f"{node.name}.key",
            "--node-config", f"partition-id={node.partition} num-partitions={len(self.nodes)}",
            "--port", str(free_port()), home=node.name,
        )  # fmt: skip

    def restart_dead(self) -> None:
        """Starts every SuperNode that does not run, at most every few seconds.

        The SuperLink accepts a killed SuperNode again only after it has missed its heartbeats for some time, up to a
        minute after the last one. Until then, each start ends with an error.
        """
        for node in self.nodes:
            if node.dead and time.monotonic() > node.started + RESTART_SECONDS:
                self.start_node(node)

    # --- the SuperNodes' network --------------------------------------------------------------------------

    def traffic(self) -> tuple[int, int]:
        """Bytes on the sockets of all SuperNodes, up and down, since the last call."""
        ups, downs = zip(*(relay.reset() for relay in self.relays), strict=True)
        return sum(ups), sum(downs)

    def shape(self, link: Link | None) -> None:
        """From now on, each SuperNode has its own `link` to the SuperLink."""
        for relay in self.relays:
            relay.shape(link)

    # --- runs ---------------------------------------------------------------------------------------------

    def run(
        self, app: Path, config: Mapping[str, Any], seconds: float, each: Callable[[], object] = lambda: None
    ) -> Path:
        """Waits for the end of `flwr run`. Restarts dead SuperNodes and calls `each` meanwhile. Returns its log."""
        self.runs += 1
        name = f"run-{self.runs}"
        settings = self.directory / f"{name}.toml"
        settings.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in config.items()))
        process = self.start(
            name, "flwr", "run", str(app.absolute()), CONNECTION, "--stream", "--run-config", str(settings)
        )

        def ended() -> bool:
            self.restart_dead()
            each()
            return process.poll() is not None

        self._wait(name, ended, seconds)
        if process.returncode:
            raise self.error(name, f"ended with code {process.returncode}")
        statuses = {run["status"] for run in self.flwr("list", CONNECTION)["runs"]}
        if statuses != {"finished:completed"}:
            raise self.error(name, f"the run ended as {statuses}")
        return self.log_file(name)

    def wait_for_nodes(self, seconds: float = START_SECONDS) -> None:
        """Waits until the SuperLink has accepted all SuperNodes."""

        def all_up() -> bool:
            self.restart_dead()
            return all(node.up for node in self.nodes)

        self._wait("node-0" if self.nodes else "superlink", all_up, seconds)

    def _wait(self, name: str, ready: Callable[[], bool], seconds: float) -> None:
        """Waits until `ready`. An error with the end of `name`'s log if that takes too long or the SuperLink dies."""
        deadline = time.monotonic() + seconds
        while not ready():
            if self.link.poll() is not None:
                raise self.error("superlink", f"ended with code {self.link.returncode}")
            if time.monotonic() > deadline:
                raise self.error(name, f"not ready after {seconds:.0f} s")
            time.sleep(0.1)

    def error(self, name: str, what: str) -> DeploymentError:
        tail = self.log_file(name).read_text(errors="replace").splitlines()[-30:]
        return DeploymentError("\n".join([f"{name}: {what}", f"the end of {self.log_file(name)}:", *tail]))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


def _answers(address: str, trusted: ssl.SSLContext) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=2, context=trusted) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def marked(mark: str) -> list[int]:
    """The processes with `mark` in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"{MARK}={mark}".encode() in entry.read_bytes().split(b"\0"):
                found.append(int(entry.parent.name))
    return found


def guard(mark: str) -> None:
    """Waits until its input is closed, then ends all processes with `mark`."""
    for stop in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(stop, signal.SIG_IGN)
    sys.stdin.buffer.read()
    while found := marked(mark):
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


if __name__ == "__main__":
    guard(sys.argv[1])

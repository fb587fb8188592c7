"""A real SuperLink and real SuperNodes on loopback: nothing is lost when they are killed, and strangers stay out."""

import fcntl
import importlib
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import gammafl as gf
from gammafl.files import tensor_files

ROOT = Path(__file__).parents[2]
APP = Path(__file__).parent / "deployment_app"
RUN_SECONDS = 600
"""Far more than the two minutes that it takes."""


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Any:
    """deployment.py of the example."""
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "flower_app"))
    return importlib.import_module("deployment")


def test_killed_supernodes_lose_no_update_and_count_none_twice(harness: Any, tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    with harness.Deployment(tmp_path / "deployment", nodes=2) as deployment:
        log = deployment.run(APP, {"directory": str(files)}, RUN_SECONDS)
        starts = [node.starts for node in deployment.nodes]
        for partition in range(2):
            (state,) = deployment.directory.glob(f"state/node-{partition}/training-*/{partition}.state")
            with held(state.with_suffix(".lock")):
                check_conservation(files, partition, state)
    assert harness.marked(deployment.mark) == []
    assert (files / "killed-after-storing").exists()
    assert (files / "killed-on-receipt").exists()
    assert min(starts) > 1, "both SuperNodes were killed"
    assert not any(name.startswith("2-") for name in accepted_by(files, 0)), "killed before its upload left"
    assert "upload 2 of client 0 (round 2) did not count" in deployment.log_file("node-0").read_text()
    assert "lost its stored state" not in log.read_text()
    check_model(files)


@contextmanager
def held(lock: Path) -> Iterator[None]:
    """No client trains meanwhile: one may still be busy with a message that the run did not wait for."""
    with lock.open() as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def check_conservation(files: Path, partition: int, state: Path) -> None:
    """What the client computed = what the server applied + residual + the open upload, if it was not applied."""
    computed = np.fromfile(files / f"computed-{partition}", np.float32).reshape(-1, 200).sum(0, dtype=np.float64)
    accepted = accepted_by(files, partition)
    numbers = [int(name.split("-")[1]) for name in accepted]
    assert len(set(numbers)) == len(numbers) >= 1
    facts, tensors = tensor_files.read(state)
    remembered = np.array(tensors["residual"], np.float64)
    if "open" in tensors and facts["number"] not in numbers:
        remembered += gf.decode(tensors["open"].tobytes()).dense()
    assert np.array_equal(computed, sum(accepted.values()) + remembered)


def check_model(files: Path) -> None:
    """The model is what the accepted uploads make of it, each counted once, and half: two are picked a round."""
    counted = [update for partition in range(2) for update in accepted_by(files, partition).values()]
    assert np.array_equal(np.load(files / "model.npy"), -np.sum(counted, axis=0) / 2)


def accepted_by(files: Path, partition: int) -> dict[str, NDArray[np.float64]]:
    """ "ROUND-NUMBER" → the update."""
    found = {}
    for path in files.glob(f"accepted-*-{partition}-*"):
        _, round_number, _, number = path.name.split("-")
        found[f"{round_number}-{number}"] = gf.decode(path.read_bytes()).dense().astype(np.float64)
    return found


def test_strangers_stay_out(harness: Any, tmp_path: Path) -> None:
    with harness.Deployment(tmp_path, nodes=0) as deployment:
        harness.write_key_pair(tmp_path, "stranger.key")
        address = ("flower-supernode", "--superlink", f"127.0.0.1:{deployment.port}", "--max-retries", "0")
        started = {
            "unregistered": ("--root-certificates", "ca.crt", "--auth-supernode-private-key", "stranger.key"),
            "without-a-key": ("--root-certificates", "ca.crt"),
            "plain": ("--insecure",),
        }
        for name, options in started.items():
            process = deployment.start(name, *address, *options, "--port", str(harness.free_port()))
            assert process.wait(120) != 0
            log = deployment.log_file(name).read_text()
            assert "Failed to initialize the connection to the SuperLink" in log
            assert "SuperNode ID" not in log
        assert "Activated" not in deployment.log_file("superlink").read_text()
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            urllib.request.urlopen(f"http://127.0.0.1:{deployment.port}/health", timeout=60)
        assert deployment.link.poll() is None

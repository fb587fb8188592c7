"""A command that is stopped says how to go on, in words that a shell takes as they are."""

import os
import pty
import shlex
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from gammafl.core.errors import ProcessDiedError
from tests.test_cli import gammafl

HELD = """
import time
from pathlib import Path

import torch
from torch.utils.data import TensorDataset

import gammafl as gf

SETTINGS = {"iterations": 20, "clients": 2, "threads": 1}


def loss(outputs, targets):
    Path("waits").touch()
    while Path("hold").exists():
        time.sleep(0.01)
    return torch.nn.functional.cross_entropy(outputs, targets)


def build(config):
    data = TensorDataset(torch.eye(8), torch.arange(8) % 2)
    return gf.torch_task(torch.nn.Linear(8, 2), [data, data], data, batch_size=4, loss=loss)
"""
STOPPED = "stopped; go on with: "
AWKWARD = "it's a $HOME with  blanks"


def told(shown: str) -> str:
    """The command that a stopped one names, which is the last that it says."""
    _, stopped, command = shown.partition(STOPPED)
    assert stopped, shown
    return command


def stopped_in_a_terminal(command: list[str], place: Path, environment: dict[str, str]) -> tuple[int, str]:
    """(exit code, what a narrow terminal shows) of a command that is stopped by Ctrl-C while its task waits."""
    terminal, ours = pty.openpty()
    begun = subprocess.Popen(
        command,
        env=environment | {"COLUMNS": "40"},
        stdin=ours,
        stdout=ours,
        stderr=ours,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )
    os.close(ours)
    reading = threading.Thread(target=read_all, args=(terminal, shown := bytearray()))
    reading.start()
    try:
        while not (place / "waits").exists():
            assert begun.poll() is None, shown.decode()
            time.sleep(0.01)
        os.killpg(begun.pid, signal.SIGINT)
        code = begun.wait(timeout=120)
    finally:
        if begun.poll() is None:
            os.killpg(begun.pid, signal.SIGKILL)
        reading.join()
        os.close(terminal)
    return code, shown.decode().replace("\r\n", "\n")


def read_all(terminal: int, shown: bytearray) -> None:
    with suppress(OSError):  # so Linux says that nobody writes any more
        while read := os.read(terminal, 4096):
            shown += read


@pytest.mark.parametrize(
    ("name", "out"),
    [("run", ["--out", f"{AWKWARD}/out"]), ("compare", ["--out", f"{AWKWARD}/out"]), ("compare", [])],
)
def test_what_a_stopped_command_says_can_be_pasted_and_finishes_it(name: str, out: list[str], in_tmp: Path) -> None:
    """The task waits in its first step as long as there is a file `hold`."""
    (in_tmp / AWKWARD).mkdir()
    (in_tmp / AWKWARD / "held.py").write_text(HELD)
    (in_tmp / "hold").touch()
    more = ["--methods", "ht", "--jobs", "1"] if name == "compare" else []
    here = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = ["gammafl", name, f"{AWKWARD}/held.py:build", *more, *out]
    code, shown = stopped_in_a_terminal(command, in_tmp, here)
    assert code == 130, shown
    directories = set(in_tmp.rglob("config.toml"))
    (in_tmp / "hold").unlink()
    done = subprocess.run(["sh", "-c", told(shown)], env=here, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    finished = {path.with_name("config.toml") for path in in_tmp.rglob("summary.json")}
    assert directories <= finished == set(in_tmp.rglob("config.toml"))


def stop(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_run_goes_on_with_the_same_data(
    in_tmp: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (in_tmp / AWKWARD).mkdir()
    (in_tmp / AWKWARD / "config.toml").touch()
    monkeypatch.setattr("gammafl.runs.execute.execute", stop)
    code, _, err = gammafl("run", "logistic-fmnist", "--data-dir", AWKWARD, "--out", AWKWARD, capsys=capsys)
    words = shlex.split(told(err))
    assert code == 130
    assert words[words.index("--data-dir") + 1] == words[words.index("--out") + 1] == AWKWARD
    assert words[words.index("--config") + 1] == f"{AWKWARD}/config.toml"


STUDY = ["study", "table3", "--task", "logistic-mini", "--quick", "--out", AWKWARD, "--only", "method=ht"]


def test_a_study_goes_on_with_the_same_command(
    in_tmp: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (in_tmp / AWKWARD).mkdir()
    monkeypatch.setattr("gammafl.experiments.runner.run_campaign", stop)
    code, _, err = gammafl(*STUDY, capsys=capsys)
    assert (code, shlex.split(told(err))) == (130, ["gammafl", *STUDY])


def test_whoever_lost_a_process_is_told_the_command_as_well(
    in_tmp: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(*_: object) -> None:
        raise ProcessDiedError("a process died")

    monkeypatch.setattr("gammafl.experiments.runner.run_campaign", lose)
    code, _, err = gammafl(*STUDY, capsys=capsys)
    said, _, command = err.partition(" --jobs: ")
    assert (code, said, shlex.split(command)) == (2, "error: a process died; go on with fewer", ["gammafl", *STUDY])

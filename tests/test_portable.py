"""What only POSIX systems have is not needed: the package works as on Windows, as far as Linux can tell."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gammafl.flower.states import state_directory
from gammafl.tasks.data.files import cache_directory

WITHOUT = """
import os, sys, warnings

for module in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[module] = None
for name in ("posix_fallocate", "sched_getaffinity", "O_NOFOLLOW", "O_NONBLOCK"):
    delattr(os, name)
warnings.filterwarnings("error", "'encoding' argument not specified", EncodingWarning, "gammafl")
import numpy as np
import gammafl as gf
"""

LIBRARY = """
schedule = gf.Schedule(0.1, 100)
server, client = gf.Server(gf.top_k(k=2), schedule, like=10), gf.Client("a", gf.top_k(k=2), like=10)
before, after = np.zeros(10, np.float32), np.arange(10, dtype=np.float32)
server.accept("a", client.encode(before, after, server.offer("a")), weight=1.0)
client.save("client.state")
gf.Client("a", gf.top_k(k=2), like=10).load("client.state")
"""

SIMULATOR = """
from gammafl.cli.main import main
settings = "--set iterations=10 --set residual_memory_mb=0 --set checkpoint.every_seconds=0"
sys.argv = f"gammafl run logistic-mini --out run {settings}".split()
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
for name in ("config.toml", "summary.json", "model.safetensors"):
    assert os.path.exists(f"run/{name}")
"""


@pytest.mark.parametrize("what", [LIBRARY, SIMULATOR], ids=["library", "simulator"])
def test_the_package_works_without_what_windows_lacks(what: str, tmp_path: Path) -> None:
    """Files are text in UTF-8, whatever the system's own encoding is."""
    command = [sys.executable, "-X", "warn_default_encoding", "-c", WITHOUT + what]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other directories")
@pytest.mark.parametrize(
    ("directory", "kind", "default"),
    [(cache_directory, "CACHE", ".cache"), (state_directory, "STATE", ".local/state")],
)
def test_on_linux_the_users_directories_are_those_of_xdg(
    directory: Callable[[], Path], kind: str, default: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv(f"GAMMAFL_{kind}", raising=False)
    monkeypatch.delenv(f"XDG_{kind}_HOME", raising=False)
    assert directory() == tmp_path / default / "gammafl"
    monkeypatch.setenv(f"XDG_{kind}_HOME", "")
    assert directory() == tmp_path / default / "gammafl"
    monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / "xdg"))
    assert directory() == tmp_path / "xdg" / "gammafl"
    monkeypatch.setenv(f"GAMMAFL_{kind}", "own")
    assert directory() == Path("own")
    assert not any(tmp_path.iterdir())

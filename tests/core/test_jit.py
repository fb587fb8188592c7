"""Compiled code needs no place to keep it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import gammafl

USE = "import gammafl as gf, numpy as np; print(len(gf.TopK(3)(np.arange(9, dtype=np.float32))))"


def test_without_any_writable_cache_the_loops_compile_all_the_same(tmp_path: Path) -> None:
    """A file stands where each cache directory would be, which stops even root from writing there."""
    package = tmp_path / "gammafl"
    shutil.copytree(Path(gammafl.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "*.npz"))
    (package / "core/__pycache__").write_text("not a directory")
    (tmp_path / "home").write_text("not a directory")
    places = {name: str(tmp_path / "home/x") for name in ("HOME", "XDG_CACHE_HOME", "IPYTHONDIR")}
    environment = {**os.environ, **places, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", USE], env=environment, capture_output=True, text=True)
    assert done.stdout == "3\n", done.stderr

"""Triton's kernel sends what the CPU's loops send. Without a GPU it runs in Triton's interpreter."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
pytestmark = pytest.mark.device

PLAY = """
import json, sys
import numpy as np, torch
from gammafl.core import kernels
from gammafl.core.device import triton_pass
from gammafl.core.device.torch_vectors import TorchVector

device, rng, wrong = sys.argv[1], np.random.default_rng(0), []
triton_pass.use()
for size in (0, 1, 1023, 1024, 1025, 5000, 20_001):
    for share in (0.0, 0.001, 0.05, 0.3, 1.0):
        for kind in ("normal", "few", "spikes", "holes"):
            delta = rng.standard_normal(size).astype(np.float32)
            if kind == "few":
                delta = np.sign(delta)
            if kind == "spikes":
                delta[: size // 3] *= 100
            if kind == "holes":
                delta[::97] = np.nan
            residual = rng.standard_normal(size).astype(np.float32)
            threshold = float(np.nanquantile(np.abs(residual + delta), 1 - share)) if size > 1 else 0.0
            rest = residual.copy()
            wanted = kernels.add_and_take_above(delta, rest, threshold)
            left = TorchVector(torch.from_numpy(residual).to(device, copy=True))
            found = left.add_and_take_above(TorchVector(torch.from_numpy(delta).to(device, copy=True)), threshold)
            same = found[0].tolist() == wanted[0].tolist() and found[1].tobytes() == wanted[1].tobytes()
            if not same or left.host().tobytes() != rest.tobytes():
                wrong.append([size, share, kind])
print(json.dumps(wrong))
"""


def test_the_kernel_finds_and_leaves_the_same(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Blocks that are full, rooms that are too small and ends that are no whole block among them."""
    device = request.config.getoption("--device")
    environment = os.environ | ({"TRITON_INTERPRET": "1"} if device == "cpu" else {})
    told = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", PLAY, device],
        capture_output=True, text=True, env=environment, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout) == []

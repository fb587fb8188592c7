"""Builds and checks the distributions, installs them into empty environments as a user does, and uses them there.

    python -m tools.dist [--extras none,report,train,flower,privacy,gpt2,tensorboard,wandb] [--out dist]

It needs an environment that has `build` and `twine`, such as the one that `make dist` makes. Each installation takes
the versions of constraints.txt. The extra `docs` is tried by `make docs`, and `triton` needs a GPU.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
NONE = "none"

LIBRARY = """
import gammafl as gf
update = gf.SparseUpdate(9, [1, 4], [1.5, 2.5])
assert gf.decode(gf.encode(update)) == update
"""
REPORT = f"""
from pathlib import Path
from gammafl.cli.main import main
import sys
sys.argv = ["gammafl", "report", {str(ROOT / "results" / "compare-cnn-cifar10-fedavg")!r}, "--out", "page.html"]
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
assert "<html" in Path("page.html").read_text()[:1000].lower()
"""
TRAIN = """
import torch, gammafl as gf
rng = torch.Generator().manual_seed(0)
clients = [torch.utils.data.TensorDataset(torch.randn(30, 4, generator=rng), torch.arange(30) % 3) for _ in range(3)]
method = gf.gamma_fedht(keep=0.3)
result = gf.simulate(torch.nn.Linear(4, 3), clients, clients[0], method=method, stepsize=0.1, iterations=20)
assert result.summary.uplink_bytes > 0
"""
FLOWER = """
import gammafl.flower
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
ClientApp(mods=[gammafl.flower.compress()])
gammafl.flower.Compressed(FedAvg(), method="gamma-fedht-q:keep=0.01")
"""
PRIVACY = """
import gammafl as gf
assert 0 < gf.Privacy(clip=1.0, noise=1.0).epsilon(rounds=10) < 100
"""
GPT2 = """
import torch, gammafl as gf
from transformers import GPT2Config, GPT2LMHeadModel
size = {"vocab_size": 11, "n_positions": 8, "n_embd": 8, "n_layer": 1, "n_head": 1}
model = GPT2LMHeadModel(GPT2Config(**size, bos_token_id=0, eos_token_id=0))
words = torch.randint(0, 11, (9, 8))
clients = [[{"input_ids": line, "labels": line} for line in words] for _ in range(2)]
settings = {"method": gf.gamma_fedht(keep=0.3), "stepsize": 0.1, "iterations": 10, "batch_size": 3}
result = gf.simulate(model, clients, clients[0], metric="perplexity", **settings)
assert result.summary.uplink_bytes > 0
"""
TRACKED = TRAIN.replace("iterations=20", "iterations=20, callbacks=[gf.TRACKER]")
TENSORBOARD = (
    TRACKED.replace("TRACKER", "TensorBoard('log')")
    + """
from pathlib import Path
assert list(Path("log").glob("events.out.tfevents.*"))
"""
)
WANDB = (
    TRACKED.replace("TRACKER", "WandB(mode='offline', directory='log')")
    + """
from pathlib import Path
assert list(Path("log").rglob("*.wandb"))
"""
)
ENTRANCES = {
    NONE: LIBRARY,
    "report": REPORT,
    "train": TRAIN,
    "flower": FLOWER,
    "privacy": PRIVACY,
    "gpt2": GPT2,
    "tensorboard": TENSORBOARD,
    "wandb": WANDB,
}
"""Extra → a program that shows that the extra works."""

BESIDE = {"tensorboard": "train", "wandb": "train"}
"""Extra → the extra that its program also needs: trackers follow a training."""


def run(*command: object, cwd: Path = ROOT) -> str:
    """Runs a command and returns what it prints. If it fails, this program ends.

    No variable PYTHON… is passed on, since PYTHONPATH would lead to the sources.
    """
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=variables, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"dist: {' '.join(map(str, command))[:200]}\n{done.stdout}{done.stderr}")
    return done.stdout


def build(out: Path) -> Path:
    """Builds the source distribution and from it the wheel, and checks both for a package index. Returns the wheel."""
    shutil.rmtree(out, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", out, ROOT)
    files = sorted(out.iterdir())
    run(sys.executable, "-m", "twine", "check", "--strict", *files)
    (wheel,) = (path for path in files if path.suffix == ".whl")
    return wheel


def try_extra(wheel: Path, extra: str, folder: Path) -> str:
    """Installs the wheel into an empty environment and uses it there. Returns what `gammafl --version` prints."""
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    extras = ",".join(dict.fromkeys([BESIDE.get(extra, extra), extra]))
    what = str(wheel) if extra == NONE else f"{wheel}[{extras}]"
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "-q", "-c", ROOT / "constraints.txt"]
    run(*pip, what, cwd=folder)
    run(python, "-c", ENTRANCES[extra], cwd=folder)
    return run(python.with_name("gammafl"), "--version", cwd=folder).strip()


def main() -> None:
    parser = argparse.ArgumentParser(description="build, check, install and use the distributions")
    parser.add_argument("--extras", default=",".join(ENTRANCES), help="comma-separated names; all by default")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="directory of the distributions")
    options = parser.parse_args()
    if unknown := set(options.extras.split(",")) - ENTRANCES.keys():
        parser.error(f"there is no extra {', '.join(sorted(unknown))}; there are {', '.join(ENTRANCES)}")
    wheel = build(options.out.absolute())
    print(f"dist: {wheel.name} and its source distribution are built and checked", flush=True)
    for extra in options.extras.split(","):
        with tempfile.TemporaryDirectory() as folder:
            said = try_extra(wheel, extra, Path(folder))
        expected = f"gammafl {wheel.name.split('-')[1]}"
        if said != expected:
            raise SystemExit(f"dist: --version says {said!r}, but the wheel is of {expected!r}")
        print(f"dist: {'without extras' if extra == NONE else extra}: {said} works", flush=True)


if __name__ == "__main__":
    main()

"""Writes digests of the ledgers and models of many runs. They show whether a change of the code changes any byte.

python tools/regression.py before.json          # in the old tree; then in the new tree:
python tools/regression.py after.json --compare before.json
python tools/regression.py cnn.json --task cnn-cifar10
"""

import argparse
import hashlib
import json
import sys
import tempfile
from pathlib import Path

from typer.testing import CliRunner

from gammafl.cli import main as cli

METHODS = ("gamma-fedht", "gamma-fedht-q", "ht", "top-k", "stc", "fedavg")
FAULTS = [f"faults.{kind}=0.05" for kind in ("absent", "killed", "lost", "late", "repeated", "corrupted", "not_finite")]
VARIANTS: dict[str, tuple[tuple[str, ...], list[str]]] = {
    "plain": (METHODS, []),
    "faults and limits": (METHODS, [*FAULTS, "limits.entries=800", "limits.norm=2.0"]),
    "naive": (("gamma-fedht",), [*FAULTS, "faults.confirmed=false"]),
    "residuals on disk": (METHODS, ["residual_memory_mb=0.1"]),
    "per tensor": (("top-k", "stc"), ["compression.scope=tensor"]),
    "f16": (("gamma-fedht", "top-k", "ht"), ["compression.values=f16"]),
    "gradient units": (("gamma-fedht", "ht"), ["compression.units=gradient"]),
    "alpha": (("gamma-fedht",), ["compression.alpha=2"]),
    "count": (("top-k", "stc"), ["compression.k=77"]),
    "normalized": (
        ("gamma-fedht", "top-k"),
        ["weights=normalized", "averaging.kind=exponential", "wire.positions=raw"],
    ),
    "dirichlet": (("gamma-fedht",), ["partition.kind=dirichlet", "stepsize.kind=exponential"]),
}
FILES = ("rounds.jsonl", "model.safetensors", "averaged-model.safetensors")
SHORT = ["iterations=100", "evaluation.every=10", "evaluation.samples=500"]


def runs(task: str) -> list[tuple[str, str, int, list[str]]]:
    """(variant, method, seed, settings) of all runs: 400 rounds of each variant on logistic-mini, 20 on other tasks."""
    if task != "logistic-mini":
        return [("plain", method, 0, SHORT) for method in METHODS]
    return [
        (variant, method, seed, [*settings, "iterations=2000"])
        for variant, (methods, settings) in VARIANTS.items()
        for method in methods
        for seed in (0, 1, 2)
    ]


def digests(task: str, method: str, seed: int, settings: list[str]) -> list[str]:
    """Makes one run. Returns the digest of each of `FILES`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        given = ["run", task, "--method", method, "--seed", str(seed), "--out", str(path)]
        result = CliRunner().invoke(cli.app, [*given, *(word for one in settings for word in ("--set", one))])
        if result.exception:
            raise result.exception
        return [hashlib.sha256((path / name).read_bytes()).hexdigest()[:16] for name in FILES]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="a JSON file for the digests")
    parser.add_argument("--task", default="logistic-mini", help="the task that is trained")
    parser.add_argument("--compare", type=Path, help="a JSON file with the digests of another tree")
    options = parser.parse_args()
    table = {
        f"{variant}, {method}, seed {seed}": digests(options.task, method, seed, settings)
        for variant, method, seed, settings in runs(options.task)
    }
    options.out.write_text(json.dumps(table, indent=1) + "\n")
    if options.compare is None:
        print(f"{len(table)} runs")
        return 0
    before = json.loads(options.compare.read_text())
    differ = [name for name in table if table[name] != before.get(name)]
    print(f"{len(table)} runs, {len(differ)} differ", *differ, sep="\n")
    return bool(differ)


if __name__ == "__main__":
    sys.exit(main())

"""The oldest and the newest supported versions of what gammafl builds on, each in an environment thrown away after.

    python -m tests.campaigns.versions [--parts core,train,flower] [--ends lowest,highest]

"lowest" takes every direct dependency at the lower bound of pyproject.toml, "highest" at the newest that its range and
the package index allow; constraints.txt does not count here. Downloads much: torch alone is hundreds of megabytes.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.campaigns.common import Ticker, say, verdict

ROOT = Path(__file__).parents[2]
CORE = [
    f"tests/core/test_{name}.py"
    for name in ("wire", "thresholds", "stepsizes", "aggregate", "theory", "compressors", "jit")
]
PARTS: dict[str, tuple[str, list[str]]] = {
    "core": ("", CORE),
    "train": (
        "[train]",
        [*CORE, "tests/core/test_error_feedback.py", "tests/federated", "tests/runs/test_resume.py"],
    ),
    "flower": ("[flower,train]", ["tests/flower/test_equivalence.py", "tests/flower/test_layout.py"]),
}
"""Extras to install, and the fast part of the suite that shows whether they do."""

RESOLUTIONS = {"lowest": "lowest-direct", "highest": "highest"}
SHOWN = ("numpy", "numba", "torch", "flwr", "pydantic", "typer", "rich", "safetensors")
COMMANDS = (["calibrate", "--dim", "1000", "--keep", "0.01", "--iterations", "100"], ["tasks"], ["run", "--help"])


def try_versions(part: str, end: str, folder: Path) -> str | None:
    """What went wrong; None if nothing did."""
    extras, tests = PARTS[part]
    uv, python = Path(sys.executable).with_name("uv"), folder / "bin/python"
    install: list[str | Path] = [uv, "pip", "install", "-q", "-p", python]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    steps: dict[str, list[str | Path]] = {
        "environment": [uv, "venv", "-q", "-p", sys.executable, folder],
        "installation": [
            *install,
            "--resolution",
            RESOLUTIONS[end],
            f"{ROOT}{extras}",
            "pytest>=8",
            "hypothesis>=6.100",
        ],
        **{f"gammafl {words[0]}": [folder / "bin/gammafl", *words] for words in COMMANDS},
        "tests": [python, "-m", "pytest", "-p", "no:cacheprovider", "-o", "filterwarnings=", *tests],
    }
    for name, command in steps.items():
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        if name == "installation":
            listed = subprocess.run([uv, "pip", "list", "-q", "-p", python], capture_output=True, text=True).stdout
            rows = [line.split() for line in listed.splitlines()]
            say(f"  {part}, {end}: " + ", ".join(f"{row[0]} {row[1]}" for row in rows if row and row[0] in SHOWN))
        if done.returncode:
            return f"{part}, {end}: {name} failed: {(done.stdout + done.stderr).strip()[-600:]}"
    say(f"  {part}, {end}: {done.stdout.strip().splitlines()[-1]}")
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description="try the oldest and the newest versions")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--ends", default=",".join(RESOLUTIONS))
    options = parser.parse_args()
    ticker, tried, failures = Ticker("versions"), 0, []
    for part in options.parts.split(","):
        for end in options.ends.split(","):
            with tempfile.TemporaryDirectory() as folder:
                failure = try_versions(part, end, Path(folder) / "venv")
            tried += 1
            failures += [failure] if failure else []
            ticker.tick(f"{tried} tried")
    for failure in failures:
        say(f"  {failure}")
    verdict("versions", not failures, f"{tried} sets of versions, {len(failures)} failures, {ticker.elapsed():.0f} s")


if __name__ == "__main__":
    main()

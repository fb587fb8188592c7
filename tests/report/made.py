"""Results that nobody trained: studies and run directories with made-up numbers, for tests of what is shown."""

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from gammafl.config.layers import make_config, to_toml
from gammafl.experiments.rows import Row, Rows, write_rows
from gammafl.runs.directory import HEADING
from gammafl.tasks.registry import settings_of

HOSTILE = "</script><script>alert('γ')</script><img src=x onerror=alert(1)>\"'&"
METHODS = ("gamma-fedht", "ht", "top-k", "top-k per tensor", "fedavg")


def figures(level: float) -> dict[str, Any]:
    """Of a run that ends at accuracy `level`."""
    sizes = {"dim": 1000, "iterations": 100, "rounds": 20, "clients": 10, "participants": 5, "last_count": 3}
    metric = {"metric": "accuracy", "final": level, "last_mean": level, "averaged": level, "last_loss": 1 - level}
    sent = {"uplink_bytes_per_client": 900.0, "value_bytes_per_client": 800.0, "dense_bytes_per_client": 9000}
    return {**sizes, **metric, **sent, "kept_fraction": 0.01}


def curve(level: float) -> dict[str, list[float]]:
    steps = range(1, 21)
    return {
        "iteration": [5.0 * i for i in steps],
        "sent_bytes": [45.0 * i for i in steps],
        "metric": [float("nan"), *(level * i / 20 for i in steps[1:])],
        "loss": [2.0 / i for i in steps],
        "kept_fraction": [0.001 * i for i in steps],
    }


def made_study(name: str, levels: dict[str, Sequence[str]], out: Path, quick: bool = True) -> Path:
    """A study's directory with a run in each place of the grid for two seeds."""
    rows = []
    for i, place in enumerate(product(*levels.values())):
        for seed in (0, 1):
            level = 0.5 + 0.01 * i + 0.001 * seed
            cell = dict(zip(levels, place, strict=True))
            rows.append(Row(f"{name}-{'-'.join(place)}-seed{seed}", cell, seed, figures(level), curve(level)))
    out.mkdir(parents=True, exist_ok=True)
    write_rows(out, Rows(name, levels, rows, quick, {"batch_size": 7}))
    return out


def made_table3(out: Path, quick: bool = True) -> Path:
    levels: dict[str, Sequence[str]] = {"task": ["logistic-fmnist"], "classes": ["2", "3"], "method": METHODS}
    return made_study("table3", levels, out, quick)


def made_hostile(out: Path) -> Path:
    """A study whose every text would like to be a script."""
    file = made_fig1(out) / "rows.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        line |= {
            "task": HOSTILE,
            "run": HOSTILE,
            "metric": HOSTILE,
            "versions": HOSTILE,
            "settings": {HOSTILE: HOSTILE},
        }
        line["curve"] = line["curve"].replace("top-k 1", f"top-k {HOSTILE}")
    lines[-1]["diverged"] = HOSTILE
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return out


def made_fig1(out: Path) -> Path:
    return made_study("fig1", {"task": ["logistic-fmnist"], "curve": ["fedavg", "ht 1", "top-k 1"]}, out)


def made_fig4(out: Path) -> Path:
    levels: dict[str, Sequence[str]] = {
        "task": ["logistic-fmnist"],
        "stepsize": ["inverse", "exponential"],
        "keep": ["1%", "0.1%"],
        "clients": ["10"],
        "classes": ["2", "3", "5"],
        "method": ["gamma-fedht", "top-k", "gamma-fedht-q", "stc"],
    }
    return made_study("fig4", levels, out)


def made_run(out: Path, method: str = "ht", seed: int = 0, finished: bool = True, **settings: Any) -> Path:
    """A run's directory."""
    config = make_config(
        settings_of("logistic-mini"), {"task": "logistic-mini", "method": method, "seed": seed}, settings
    )
    out.mkdir(parents=True)
    (out / "config.toml").write_text(HEADING + to_toml(config))
    records = [
        {"round": i, "iteration": 5 * i, "participants": [0, 1], "train_loss": 1.0, "kept": 20, "uplink_bytes": 100}
        | ({"metric": 0.02 * i, "loss": 1 / i} if i % 2 == 0 else {})
        for i in range(1, 21)
    ]
    (out / "rounds.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    if finished:
        spent = {"wall_seconds": 2.0, "evaluation_seconds": 1.0, "peak_memory_bytes": 10**8}
        sent = {"best": 0.4, "kept_per_upload": 10.0, "uplink_bytes": 4500, "refused_uploads": 0, "missing_uploads": 0}
        losses = {"final_loss": 0.6, "averaged_loss": 0.6}
        summary = {"task": "logistic-mini", "method": method, "seed": seed, **figures(0.4), **losses, **sent, **spent}
        (out / "summary.json").write_text(json.dumps(summary))
    return out


def made_comparison(
    out: Path, methods: Sequence[str] = ("gamma-fedht", "fedavg"), seeds: Sequence[int] = (0, 1)
) -> Path:
    """A comparison's directory."""
    rows = []
    for method, seed in product(methods, seeds):
        summary = json.loads(
            (made_run(out / "runs" / f"{method}-seed{seed}", method, seed) / "summary.json").read_text()
        )
        cell = {"task": summary.pop("task"), "method": summary.pop("method")}
        rows.append(Row(f"{method}-seed{seed}", cell, summary.pop("seed"), summary, curve(0.4)))
    write_rows(out, Rows("compare", {"task": ["logistic-mini"], "method": methods}, rows))
    return out

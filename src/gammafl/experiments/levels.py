"""Factors that many studies have: tasks, the methods at equal traffic, and #C; and what a preset makes of them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gammafl.config.layers import flat, merge
from gammafl.config.presets import Preset, preset_named
from gammafl.experiments.grid import TASK, Factor, Level, Study
from gammafl.experiments.labels import PER_TENSOR
from gammafl.methods.registry import entry_named, split_expression

QUICK: dict[str, dict[str, Any]] = {
    "cnn-cifar10": {"iterations": 20, "evaluation": {"every": 1, "samples": 100}},
    "vgg11s-flickr": {"iterations": 10, "evaluation": {"every": 1, "samples": 50}},
    "vgg11s-pacs": {"iterations": 10, "evaluation": {"every": 1, "samples": 50}},
    "gpt2-wikitext2": {
        "iterations": 1,
        "local_steps": 1,
        "clients": 2,
        "sequence": 16,
        "evaluation": {"every": 1, "samples": 2},
    },
    "gpt2-tiny-sotu": {"iterations": 10, "evaluation": {"every": 1, "samples": 20}},
}
"""Task → what --quick means for it; all others have `USUALLY_QUICK` alone."""
USUALLY_QUICK: dict[str, Any] = {"iterations": 100, "evaluation": {"every": 2, "last": 3, "samples": 500}}


def tasks(*usual: str, further: tuple[str, ...] = (), where: Mapping[str, Mapping[str, Any]] | None = None) -> Factor:
    """The tasks that are run unless others are asked for, and `further` ones. `where` is task → settings."""
    settings = where or {}
    return Factor(
        TASK,
        tuple(Level(t, {"task": t, **settings.get(t, {})}, quick=QUICK.get(t, {})) for t in (*usual, *further)),
        usual,
    )


def methods(*chosen: str, quick: tuple[str, ...] = ()) -> Factor:
    """Methods at equal traffic; 'top-k per tensor' is Top-k of each tensor.

    Top-k keeps as many entries as γ-FedHT, if that is among them; so do others whose card names a leader.
    """
    levels = []
    for name in chosen:
        base = name.removesuffix(PER_TENSOR)
        scope = {"compression": {"scope": "tensor"}} if base != name else {}
        leader = leader_of(base)
        levels.append(Level(name, {"method": base, **scope}, follows=leader if leader in chosen else None))
    return Factor("method", tuple(levels), quick=quick)


def leader_of(method: str) -> str | None:
    """The method that decides how many entries `method` keeps; None if it does itself, or was told."""
    name, settings = split_expression(method)
    return None if settings.keys() & {"k", "keep"} else entry_named(name).follows


def classes(*counts: int, quick: tuple[str, ...] = ("2",)) -> Factor:
    """#C."""
    levels = (Level(str(c), {"partition": {"kind": "labels", "classes": c}}) for c in counts)
    return Factor("classes", tuple(levels), quick=quick)


def in_preset(study: Study, name: str) -> Study:
    """`study` in a preset: under the levels, which say what they differ in.

    What it says of methods goes to those that are a level. Where one is there in both scopes, each keeps its own.
    """
    preset = preset_named(name)
    study.check_changes({key: value for key, value in flat(preset.settings).items() if not key.endswith(".kind")})
    factors = [_in_preset(factor, preset) for factor in study.factors]
    return replace(study, factors=tuple(factors), settings=merge(preset.settings, study.settings))


def _in_preset(factor: Factor, preset: Preset) -> Factor:
    if any(level.name.endswith(PER_TENSOR) for level in factor.levels):
        return factor
    levels = []
    for level in factor.levels:
        known = [level.settings["method"]] if "method" in level.settings else []
        settings = {"compression": preset.of_methods(known)} if known else {}
        levels.append(replace(level, settings=merge(settings, level.settings)))
    return replace(factor, levels=tuple(levels))

"""Factors that many studies share: tasks, methods at equal traffic, and #C. Also how a preset changes them."""

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
"""Task → its own settings of --quick, which win over those of the study. Other tasks have only those of the study."""
USUALLY_QUICK: dict[str, Any] = {"iterations": 100, "evaluation": {"every": 2, "last": 3, "samples": 500}}
"""The settings of --quick in most studies."""


def tasks(*usual: str, further: tuple[str, ...] = (), where: Mapping[str, Mapping[str, Any]] | None = None) -> Factor:
    """The factor of tasks: `usual` ones run by default, `further` ones on request. `where` is task → settings."""
    settings = where or {}
    return Factor(
        TASK,
        tuple(Level(t, {"task": t, **settings.get(t, {})}, quick=QUICK.get(t, {})) for t in (*usual, *further)),
        usual,
    )


def methods(*chosen: str, quick: tuple[str, ...] = ()) -> Factor:
    """The factor of methods at equal traffic. 'top-k per tensor' applies Top-k to each tensor on its own.

    If the card of a method names a leader that is also `chosen`, the method keeps as many entries as this leader. So
    Top-k follows γ-FedHT.
    """
    levels = []
    for name in chosen:
        base = name.removesuffix(PER_TENSOR)
        scope = {"compression": {"scope": "tensor"}} if base != name else {}
        leader = leader_of(base)
        levels.append(Level(name, {"method": base, **scope}, follows=leader if leader in chosen else None))
    return Factor("method", tuple(levels), quick=quick)


def leader_of(method: str) -> str | None:
    """The method that decides how many entries `method` keeps. None if it has no leader, or sets its own k or keep."""
    name, settings = split_expression(method)
    return None if settings.keys() & {"k", "keep"} else entry_named(name).follows


def classes(*counts: int, quick: tuple[str, ...] = ("2",)) -> Factor:
    """The factor #C: how many classes a client's samples have."""
    levels = (Level(str(c), {"partition": {"kind": "labels", "classes": c}}) for c in counts)
    return Factor("classes", tuple(levels), quick=quick)


def in_preset(study: Study, name: str) -> Study:
    """Applies a preset to `study`. The settings of the study and of its levels win over those of the preset.

    The preset's settings for single methods go to the levels of these methods. A factor that also has methods per
    tensor does not take them, because its levels already differ in the scope.
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

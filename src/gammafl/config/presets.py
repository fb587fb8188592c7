"""Settings under one name, for `--preset`: how the code of others does what a paper leaves open.

A preset lies over the task's own settings and under everything that the user says.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gammafl.core.errors import InputError
from gammafl.core.names import did_you_mean
from gammafl.methods.registry import entry_named

PRESET = "preset"
"""The key under which the rows of a study record the preset."""


@dataclass(frozen=True)
class Preset:
    """`settings` are of all runs, `compression` of the methods that have such settings."""

    description: str
    tasks: tuple[str, ...]
    settings: Mapping[str, Any]
    compression: Mapping[str, Any]

    def of_methods(self, methods: Sequence[str]) -> dict[str, Any]:
        """Those settings of methods that one of these has.

        >>> PRESETS["dagc-code"].of_methods(["top-k"]), PRESETS["dagc-code"].of_methods(["fedavg"])
        ({'scope': 'tensor'}, {})
        """
        known = {key for method in methods for key in entry_named(method).parameters}
        return {key: value for key, value in self.compression.items() if key in known}


PRESETS = {
    "dagc-code": Preset(
        "as the public code of DAGC, by the same group: cyclic partition, passes in one fixed order, normalised "
        "weights; Top-k, STC and whatever else has a scope per tensor",
        ("cnn-cifar10", "logistic-fmnist", "logistic-mini"),
        {
            "partition": {"kind": "labels", "scheme": "cyclic"},
            "sampler": "epochs-fixed",
            "weights": "normalized",
        },
        {"scope": "tensor"},
    ),
}


def preset_named(name: str) -> Preset:
    if name not in PRESETS:
        raise InputError(f"no preset {name!r}{did_you_mean(name, PRESETS)}; they are {', '.join(PRESETS)}")
    return PRESETS[name]


def check_preset(name: str | None, task: str) -> None:
    """An error where the preset is not for this task."""
    if name and task not in (tasks := preset_named(name).tasks):
        raise InputError(f"the preset {name} is for {', '.join(tasks)}, not for {task}")


def preset_settings(name: str | None, task: str, methods: Sequence[str]) -> dict[str, Any]:
    """What the preset says of a run of this task, or of a comparison of these methods; nothing without a name."""
    check_preset(name, task)
    if not name:
        return {}
    preset = preset_named(name)
    return {**preset.settings, "compression": preset.of_methods(methods)}

"""Groups of settings with a name, for `--preset`: choices of published code that a paper does not state.

A preset overrides the task's settings; the user's own settings override the preset.
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
    """`settings` are for all runs; `compression` is for methods that have such settings."""

    description: str
    tasks: tuple[str, ...]
    settings: Mapping[str, Any]
    compression: Mapping[str, Any]

    def of_methods(self, methods: Sequence[str]) -> dict[str, Any]:
        """The settings in `compression` that at least one of these methods has.

        >>> PRESETS["dagc-code"].of_methods(["top-k"]), PRESETS["dagc-code"].of_methods(["fedavg"])
        ({'scope': 'tensor'}, {})
        """
        known = {key for method in methods for key in entry_named(method).parameters}
        return {key: value for key, value in self.compression.items() if key in known}


PRESETS = {
    "dagc-code": Preset(
        "as the public code of DAGC, by the same group: cyclic partition, passes in one fixed order, normalised "
        "weights; Top-k, STC and other methods with a scope work per tensor",
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
    """Raises an error if the preset is not made for this task."""
    if name and task not in (tasks := preset_named(name).tasks):
        raise InputError(f"the preset {name} is for {', '.join(tasks)}, not for {task}")


def preset_settings(name: str | None, task: str, methods: Sequence[str]) -> dict[str, Any]:
    """The preset's settings for a run of this task with these methods; none without a name."""
    check_preset(name, task)
    if not name:
        return {}
    preset = preset_named(name)
    return {**preset.settings, "compression": preset.of_methods(methods)}

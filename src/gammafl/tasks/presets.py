"""The tasks by name with their settings, which are the paper's (Table I, Sec. V-A), as data.

No torch here: the command line lists and checks tasks without loading it.
"""

from dataclasses import dataclass, field
from typing import Any

from gammafl.core.errors import InputError
from gammafl.core.names import did_you_mean


@dataclass(frozen=True)
class Preset:
    """A task's data set and the settings in which it differs from `RunConfig`'s defaults."""

    description: str
    dataset: str
    settings: dict[str, Any] = field(default_factory=dict)


PRESETS = {
    "logistic-mini": Preset(
        "logistic regression on 5,000 Fashion-MNIST images that come with the package",
        "fashion-mnist-mini",
        {"iterations": 2000, "evaluation": {"every": 4, "last": 30}},
    ),
    "logistic-fmnist": Preset(
        "Logistic@FMNIST of the paper: 10,250 parameters, 60,000 images",
        "fashion-mnist",
        {"iterations": 20_000},
    ),
}


def preset_named(name: str) -> Preset:
    """The preset of that name, or an error that names the nearest one."""
    if name not in PRESETS:
        raise InputError(f"no task {name!r}{did_you_mean(name, PRESETS)}; the tasks are {', '.join(PRESETS)}")
    return PRESETS[name]

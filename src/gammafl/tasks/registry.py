"""The tasks by name, with the paper's settings (Table I, Sec. V-A).

It does not import torch: so the command line lists and checks tasks quickly.
"""

from dataclasses import dataclass, field
from typing import Any

from gammafl.core.errors import InputError
from gammafl.core.names import did_you_mean
from gammafl.methods.files import is_file
from gammafl.tasks.user_task import own_settings


@dataclass(frozen=True)
class Preset:
    """A task's model and data set, and the settings in which it differs from `RunConfig`'s defaults."""

    description: str
    model: str
    dataset: str
    settings: dict[str, Any] = field(default_factory=dict)


CIFAR10_INPUT = {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2023, 0.1994, 0.2010), "augment": True}

VGG11S_SETTINGS = {
    "iterations": 40_000,
    "batch_size": 8,
    "clients": 15,
    "initialisation": "lecun",
    "keep": 0.001,
    "partition": {"kind": "natural"},
    "input": {"mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25), "augment": True},
    "evaluation": {"every": 200, "last": 8},
}

PRESETS = {
    "logistic-mini": Preset(
        "logistic regression on 5,000 Fashion-MNIST images that come with the package",
        "logistic",
        "fashion-mnist-mini",
        {"iterations": 2000, "evaluation": {"every": 4, "last": 30}},
    ),
    "logistic-fmnist": Preset(
        "Logistic@FMNIST of the paper: 10,250 parameters, 60,000 images",
        "logistic",
        "fashion-mnist",
        {"iterations": 20_000},
    ),
    "cnn-cifar10": Preset(
        "CNN@CIFAR-10 of the paper: 235,690 parameters, 50,000 images",
        "cnn",
        "cifar10",
        {
            "iterations": 40_000,
            "batch_size": 8,
            "keep": 0.001,
            "input": CIFAR10_INPUT,
            "evaluation": {"every": 200, "tail_every": 20, "last": 80},  # the last fifth: 1,600 rounds
        },
    ),
    "vgg11s-flickr": Preset(
        "VGG11s@Flickr of the paper: 869,481 parameters, 15 clients by subcontinent",
        "vgg11s",
        "flickr-mammal",
        VGG11S_SETTINGS,
    ),
    "vgg11s-pacs": Preset(
        "VGG11s on PACS, a real shift between domains: 15 clients, each within one of 4 domains",
        "vgg11s",
        "pacs",
        VGG11S_SETTINGS,
    ),
    "gpt2-wikitext2": Preset(
        "GPT2@Wikitext2 of the paper: 124,439,808 parameters",
        "gpt2",
        "wikitext2",
        {
            "iterations": 1000,
            "batch_size": 1,
            "keep": 0.001,
            "partition": {"kind": "contiguous"},
            "evaluation": {"every": 5, "last": 8, "samples": 64},
        },
    ),
    "gpt2-tiny-sotu": Preset(
        "a small GPT-2 on State of the Union addresses, a client for every president or two",
        "gpt2-tiny",
        "sotu",
        {
            "iterations": 1000,
            "batch_size": 1,
            "sequence": 64,
            "clients": 20,
            "partition": {"kind": "natural"},
            "evaluation": {"every": 10, "last": 8, "samples": 256},
        },
    ),
}


def settings_of(name: str) -> dict[str, Any]:
    """The settings with which a task starts: the preset's, or SETTINGS in a user's own file."""
    return own_settings(name) if is_file(name) else preset_named(name).settings


def preset_named(name: str) -> Preset:
    """The preset with this name, or an error with a similar name."""
    if name.endswith(".py"):
        raise InputError(f"which function of {name} makes the task? Give {name}:FUNCTION, such as {name}:build")
    if name not in PRESETS:
        raise InputError(f"no task {name!r}{did_you_mean(name, PRESETS)}; the tasks are {', '.join(PRESETS)}")
    return PRESETS[name]

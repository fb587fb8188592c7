"""The common arguments of the commands that train, and the settings that they make."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gammafl.cli import completion
from gammafl.core.errors import InputError

Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; may be repeated. See: gammafl tasks TASK"),
]
Config = Annotated[Path | None, typer.Option(help="Settings from a TOML file, such as a run's config.toml.")]
Budget = Annotated[
    str | None, typer.Option(help="What clients may send: '64 kB/upload', '20 MB/run', or '2 kB/s, 30 s/round'.")
]
Link = Annotated[
    str | None,
    typer.Option(
        metavar="LINK",
        help="Links for a virtual clock: '1 Mbit/s up, 10 Mbit/s down, 50 ms', or a file with one for each client.",
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Settings under one name, such as dagc-code; see: gammafl tasks.",
        autocompletion=completion.presets,
    ),
]
DataDir = Annotated[Path | None, typer.Option(help="Read the data set from this directory instead of the cache.")]
Task = Annotated[
    str | None,
    typer.Argument(
        help="A task's name; see: gammafl tasks. Or your own: file.py:function.", autocompletion=completion.tasks
    ),
]
Methods = Annotated[
    str | None,
    typer.Option(
        help="Comma-separated, each as for --method of run; or all. By default the paper's methods.",
        autocompletion=completion.several_methods,
    ),
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        metavar="tensorboard|wandb", help="Write the run to this tracker as well, in the run directory; repeatable."
    ),
]


def layers(
    task: str | None,
    config: Path | None,
    set_: list[str] | None,
    preset: str | None = None,
    methods: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Settings in order of priority: the task's, the preset's for `methods`, the file's, the command line's."""
    from gammafl.config.layers import parse_settings, read_toml
    from gammafl.config.presets import preset_settings
    from gammafl.tasks.registry import settings_of

    file = read_toml(config) if config else {}
    settings = parse_settings(set_ or [])
    if "task" in settings:
        raise InputError("the task is an argument, not a setting: gammafl run TASK")
    name = task or file.get("task")
    if not isinstance(name, str):
        raise InputError("which task? Give its name, such as: gammafl run logistic-mini --method gamma-fedht")
    said = [str(table["method"]) for table in (settings, file) if "method" in table]
    named = preset_settings(preset, name, methods or said[:1])
    return [settings_of(name), named, file, settings, {"task": name}]


def base_settings(
    command: str,
    task: str | None,
    config: Path | None,
    set_: list[str] | None,
    given: dict[str, str | None],
    own: dict[str, str] | None = None,
    preset: str | None = None,
    methods: Sequence[str] = (),
) -> dict[str, Any]:
    """The settings that all runs of a comparison share.

    given    settings that have their own options
    own      settings that the command itself sets, with their option: --set must not give them
    preset   the name of a preset, for `methods`
    """
    from gammafl.config.layers import merge

    parts = layers(task, config, set_, preset, methods)
    settings = parts[3]
    for key, option in {"seed": "--seeds", "method": "--methods", **(own or {})}.items():
        if key in settings:
            raise InputError(f"{command} takes {option}, not --set {key}")
    if "k" in settings.get("compression", {}):
        raise InputError(
            f"{command} sets how many entries Top-k and STC keep itself (compare: the k that sends as many entries"
            " as γ-FedHT); leave out its --set"
        )
    base: dict[str, Any] = {}
    for part in (*parts, {key: value for key, value in given.items() if value is not None}):
        base = merge(base, part)
    return base


def short_name(task: str) -> str:
    """A task's name as a part of a file name. For your own task file.py:function, without the folder."""
    return Path(task).name.replace(".py:", "-")

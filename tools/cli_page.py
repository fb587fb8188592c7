"""Writes docs/cli.md from the commands: `python -m tools.cli_page`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from gammafl.cli.main import app
from tools.markdown import table

PAGE = Path(__file__).parent.parent / "docs/cli.md"
HEAD = """# Command line

<!-- Written by `make reference-pages` from the commands; a test holds them equal. Change src/gammafl/cli/. -->

`--help` after a command prints the same. [Exit codes](exit-codes.md) say how a command ended, and
[configuration](configuration.md) lists the settings that `--set` changes.

```
gammafl tasks                                              # lists the tasks; with a name: all settings of the task
gammafl methods                                            # lists the methods; with a name: the card of the method
gammafl run logistic-mini --method gamma-fedht             # writes runs/logistic-mini-gamma-fedht-seed0
gammafl run logistic-mini --method ht:threshold=0.1 --set partition.classes=3 --seed 1
gammafl run --config runs/logistic-mini-gamma-fedht-seed0/config.toml --out again   # repeats the run
gammafl run --config again/config.toml --out again --resume
gammafl compare logistic-fmnist --seeds 0,1,2 --jobs 2     # the paper's methods side by side; --methods all: every one
gammafl study table3 --task logistic-fmnist                # a table of the paper
gammafl pareto logistic-fmnist                             # which method needs the fewest bytes?
gammafl report runs/compare-logistic-fmnist --out page.html   # one HTML page to read and share
gammafl run cnn-cifar10 --set iterations=2000 --profile    # also shows where the time went
gammafl data get cifar10                                   # downloads from its official address
```
"""
GENERAL = {"help", "install_completion", "show_completion"}
"""Options that every program of this kind has."""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *_commands("gammafl", typer.main.get_command(app))])


def _commands(name: str, command: Any) -> Iterator[str]:
    parts = getattr(command, "commands", None)
    if parts is None:
        yield _section(name, command)
    for word, part in (parts or {}).items():
        if not part.hidden:
            yield from _commands(f"{name} {word}", part)


def _section(name: str, command: Any) -> str:
    shown = [parameter for parameter in command.params if parameter.name not in GENERAL]
    arguments = [one for one in shown if one.param_type_name == "argument"]
    options = [one for one in shown if one.param_type_name == "option"]
    lines = [f"## {name}", "", " ".join(command.help.split()), ""]
    if command.epilog:
        lines += [f"    {command.epilog.partition(':')[2].strip()}", ""]
    if arguments:
        rows = [[f"`{one.human_readable_name}`", _need(one), one.help or ""] for one in arguments]
        lines += [table(["argument", "", "meaning"], rows)]
    if options:
        rows = [[", ".join(f"`{word}`" for word in one.opts), _value(one), one.help or ""] for one in options]
        lines += [table(["option", "value", "meaning"], rows)]
    return "\n".join(lines)


def _need(argument: Any) -> str:
    return "needed" if argument.required else "may be left out"


def _value(option: Any) -> str:
    """The kind of value that an option takes, and its default."""
    if option.is_flag:
        return "–"
    kind = f"`{option.metavar or option.type.name.upper().removesuffix(' RANGE')}`"
    if option.required:
        return f"{kind}, needed"
    if option.name == "jobs":
        return f"{kind}, by default one for each core"
    return kind if option.default in (None, "", ()) else f"{kind}, by default `{option.default}`"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")

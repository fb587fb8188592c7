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
# Lists: all tasks, the settings of one task; all methods, the card of one method.
gammafl tasks
gammafl tasks logistic-mini
gammafl methods
gammafl methods top-k

# One run, written to runs/logistic-mini-gamma-fedht-seed0.
gammafl run logistic-mini --method gamma-fedht
gammafl run logistic-mini --method ht:threshold=0.1 --set partition.classes=3 --seed 1

# The same run again; going on with it after it was stopped; where its time went.
gammafl run --config runs/logistic-mini-gamma-fedht-seed0/config.toml --out again
gammafl run --config again/config.toml --out again --resume
gammafl run logistic-mini --set iterations=500 --profile

# The paper's methods side by side; with --methods all: every method.
gammafl compare logistic-mini --seeds 0,1,2 --jobs 2

# One HTML page of a comparison, to read and share.
gammafl report runs/compare-logistic-mini --out page.html

# Which method needs the fewest bytes? And a table of the paper.
gammafl pareto logistic-mini
gammafl study table3 --task logistic-fmnist

# A data set, from its official address.
gammafl data get cifar10
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
    words = (option.metavar or option.type.name.upper().removesuffix(" RANGE")).split("|")
    kind = " or ".join(f"`{word}`" for word in words)
    if option.required:
        return f"{kind}, needed"
    if option.name == "jobs":
        return f"{kind}, by default one for each core"
    return kind if option.default in (None, "", ()) else f"{kind}, by default `{option.default}`"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")

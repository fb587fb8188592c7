"""What the commands ask of their arguments."""

from importlib.util import find_spec
from typing import Any

import click.exceptions
from typer.core import TyperGroup

from gammafl.core.errors import InputError


class Commands(TyperGroup):
    """Says once what a mistyped command may have meant: click does so from 8.4 on, and typer would say it again."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.suggest_commands = not hasattr(click.exceptions, "NoSuchCommand")


def words(text: str) -> list[str]:
    """Comma-separated."""
    return [word.strip() for word in text.split(",") if word.strip()]


def numbers(text: str, option: str) -> list[int]:
    """Comma-separated, at least one."""
    try:
        found = [int(word) for word in words(text)]
    except ValueError:
        raise InputError(f"{option} takes whole numbers, such as {option} 0,1,2; got {text!r}") from None
    if not found:
        raise InputError(f"{option} needs at least one number")
    return found


def need_torch() -> None:
    for package in ("torch", "safetensors", "matplotlib"):
        if find_spec(package) is None:
            raise InputError(f"this needs {package}, which is not installed: pip install 'gammafl[train]'")

"""Parses arguments, and writes the commands that a user can run next."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from typer.core import TyperGroup

from gammafl.cli.exit_codes import ExitCode
from gammafl.core.errors import InputError, ProcessDiedError, not_installed


class Commands(TyperGroup):
    """Suggests a name for a mistyped command once. Newer versions of click and of typer would both do it."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:
            if getattr(error, "possibilities", None):  # click adds its own suggestions when it shows the error
                error.message = error.message.partition(" Did you mean")[0]  # type: ignore[attr-defined]
            raise


def words(text: str) -> list[str]:
    """The words of a comma-separated text."""
    return [word.strip() for word in text.split(",") if word.strip()]


def numbers(text: str, option: str, least: int = 1) -> list[int]:
    """The numbers of a comma-separated text: one or more, each at least `least`, none twice."""
    try:
        found = [int(word) for word in words(text)]
    except ValueError:
        raise InputError(f"{option} takes whole numbers, such as {option} 0,1,2; got {text!r}") from None
    if not found:
        raise InputError(f"{option} needs at least one number")
    if min(found) < least:
        raise InputError(f"{option} takes numbers of at least {least}, got {min(found)}")
    if len(set(found)) < len(found):
        raise InputError(f"{option} names a number twice: {text}")
    return found


def need_torch() -> None:
    for package in ("torch", "safetensors"):
        if find_spec(package) is None:
            raise not_installed(package, "train")


def need_flower() -> None:
    if find_spec("flwr") is None:
        raise not_installed("flwr", "flower")


def command_line(*words: str | Path) -> str:
    """A gammafl command for a shell, with quotes around paths that need them."""
    return shlex.join(["gammafl", *map(str, words)])


def command_again(out: Path | None = None) -> str:
    """The command that started this process; with `out` as --out, if it would choose another directory now."""
    given = sys.argv[1:]
    return command_line(*given[:1], *(("--out", out) if out else ()), *given[1:])


@contextmanager
def told_how_to_go_on(command: str, begun: Path) -> Iterator[None]:
    """After a stop, or when a process died, prints the `command` that continues, if `begun` exists.

    Use it outside the progress bars, which would break a long command into lines.
    """
    try:
        yield
    except KeyboardInterrupt:
        print(f"stopped; go on with: {command}" if begun.exists() else "stopped before it began", file=sys.stderr)
        sys.exit(ExitCode.STOPPED)
    except ProcessDiedError as error:
        raise InputError(f"{error}; go on with fewer --jobs: {command}") from None

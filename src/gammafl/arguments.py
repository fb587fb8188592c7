"""What the commands ask of their arguments."""

from importlib.util import find_spec
from typing import Any

from typer.core import TyperGroup

from gammafl.core.errors import InputError, not_installed


class Commands(TyperGroup):
    """Says once what a mistyped command may have meant: newer versions of click and of typer both do."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:
            if getattr(error, "possibilities", None):  # click's own, which it adds when it shows the error
                error.message = error.message.partition(" Did you mean")[0]  # type: ignore[attr-defined]
            raise


def words(text: str) -> list[str]:
    """Comma-separated."""
    return [word.strip() for word in text.split(",") if word.strip()]


def numbers(text: str, option: str, least: int = 1) -> list[int]:
    """Comma-separated, at least one, each of them at least `least`, none twice."""
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
    for package in ("torch", "safetensors", "matplotlib"):
        if find_spec(package) is None:
            raise not_installed(package, "train")

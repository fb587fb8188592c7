"""What a file says is looked at before it is believed: anybody may have written it."""

import stat
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Count = Annotated[int, Field(ge=0, le=2**62)]
"""Far beyond anything that is counted, and still a number that messages and sums can hold."""


class Facts(BaseModel):
    """What a file must say, and of which type each part is."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


SomeFacts = TypeVar("SomeFacts", bound=Facts)


def checked(kind: type[SomeFacts], found: Any) -> SomeFacts:
    """`found` as facts of a kind; a `ValueError` of one line that names the first that is missing or wrong."""
    try:
        return kind.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part)[:40].encode("unicode_escape").decode() for part in first["loc"])
        raise ValueError(f"{place}: {first['msg']}" if place else first["msg"]) from None


def is_there(path: Path) -> bool:
    """Whether anything has this name, be it a link that leads nowhere; an `OSError` where that can't be told."""
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    return True


def require_regular(path: Path) -> None:
    """Refuses, by a `ValueError`, what is no file of bytes: opening a pipe waits until somebody writes to it."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("it is not a regular file")

"""Checks of what a file contains, before it is used: anybody may have written it."""

import stat
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Count = Annotated[int, Field(ge=0, le=2**62)]
"""A count. The limit is far above any real count, and sums of a few counts still fit into 64 bits."""


class Facts(BaseModel):
    """The base of models that state which fields a file must have, and their types."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


SomeFacts = TypeVar("SomeFacts", bound=Facts)


def checked(kind: type[SomeFacts], raw: Any) -> SomeFacts:
    """Checks `raw` against `kind`. A `ValueError` names the first field that is missing or wrong, in one line."""
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part)[:40].encode("unicode_escape").decode() for part in first["loc"])
        raise ValueError(f"{place}: {first['msg']}" if place else first["msg"]) from None


def is_there(path: Path) -> bool:
    """Whether a file of any kind has this name, even a broken link. An `OSError` if the directory can't be read."""
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    return True


def require_regular(path: Path) -> None:
    """Raises a `ValueError` if `path` is no regular file. To open a pipe, for example, would wait for a writer."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("it is not a regular file")

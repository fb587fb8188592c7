"""Levels by their names in a method's settings."""

from typing import Literal, get_args

from gammafl.core.errors import InputError
from gammafl.core.levels import Level, PaperLevel, Profile, RunLevel, UploadLevel

LevelName = Literal["upload", "run", "paper"]

THRESHOLD_COST = "O(d): one fused pass, and at level 'upload' a sample before and a choice among candidates after it"


def level_named(name: LevelName, keep: float, profile: Profile) -> Level:
    """The level with this name, for the kept fraction `keep`."""
    if name == "upload":
        return UploadLevel(keep, profile)
    if name not in get_args(LevelName):
        raise InputError(f"level must be one of {', '.join(get_args(LevelName))}, got {name!r}")
    if profile != "constant":
        raise InputError(f"profile has no effect at level {name!r}; leave it out, or use level='upload'")
    return RunLevel(keep) if name == "run" else PaperLevel(keep)

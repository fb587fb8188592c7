"""Unknown names: the error for them, and suggestions."""

import difflib
from collections.abc import Iterable

from gammafl.core.errors import InputError


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """' (did you mean …?)' if a known name is similar, else an empty text."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" (did you mean {near[0]!r}?)" if near else ""


def require_settings(owner: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raises an error if one of `names` is no setting of `owner`, whose settings are `known`.

    >>> require_settings("top-k", ["kep"], ["keep", "k"])
    Traceback (most recent call last):
    gammafl.core.errors.InputError: top-k has no setting 'kep' (did you mean 'keep'?); it has keep, k
    """
    known = list(known)
    for name in names:
        if name not in known:
            there = ", ".join(known) or "none"
            raise InputError(f"{owner} has no setting {name!r}{did_you_mean(name, known)}; it has {there}")

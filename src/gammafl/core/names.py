"""The names of the methods, and what was probably meant by one that is none of them."""

import difflib
from collections.abc import Iterable

LABELS = {
    "gamma-fedht": "γ-FedHT",
    "gamma-fedht-q": "γ-FedHT-Q",
    "ht": "HT",
    "top-k": "Top-k",
    "stc": "STC",
    "fedavg": "FedAVG",
}
"""Method name on the command line → name in print."""

METHOD_NAMES = tuple(LABELS)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """', did you mean …?' where something known is near, else nothing."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f", did you mean {near[0]!r}?" if near else ""

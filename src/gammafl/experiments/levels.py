"""Factors that many studies have: the methods at equal traffic, and #C."""

from gammafl.experiments.grid import Factor, Level
from gammafl.methods.registry import entry_named, label_of, names

LEVELS = {
    "gamma-fedht": Level("gamma-fedht", {"method": "gamma-fedht"}),
    "gamma-fedht-q": Level("gamma-fedht-q", {"method": "gamma-fedht-q"}),
    "ht": Level("ht", {"method": "ht"}),
    "top-k": Level("top-k", {"method": "top-k"}, follows="gamma-fedht"),
    "top-k per tensor": Level(
        "top-k per tensor", {"method": "top-k", "compression": {"scope": "tensor"}}, follows="gamma-fedht"
    ),
    "stc": Level("stc", {"method": "stc"}, follows="gamma-fedht-q"),
    "stc per tensor": Level(
        "stc per tensor", {"method": "stc", "compression": {"scope": "tensor"}}, follows="gamma-fedht-q"
    ),
    "fedavg": Level("fedavg", {"method": "fedavg"}),
}
"""The methods at equal traffic: Top-k and STC keep as many entries as γ-FedHT and γ-FedHT-Q did."""

PER_TENSOR = {"top-k per tensor": "#CC79A7", "stc per tensor": "#999933"}


def colour(method: str) -> str:
    """Of a level's lines; empty for a level that is no method."""
    if method in PER_TENSOR:
        return PER_TENSOR[method]
    return entry_named(method).colour if method in names() else ""


def methods(*names: str, quick: tuple[str, ...] = ()) -> Factor:
    return Factor("method", tuple(LEVELS[name] for name in names), quick)


def classes(*counts: int, quick: tuple[str, ...] = ("2",)) -> Factor:
    """#C."""
    return Factor(
        "classes", tuple(Level(str(c), {"partition": {"kind": "labels", "classes": c}}) for c in counts), quick
    )


def label(method: str) -> str:
    """'Top-k per tensor' for 'top-k per tensor'."""
    base, per, scope = method.partition(" per ")
    return label_of(base) + per + scope

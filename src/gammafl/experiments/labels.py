"""What methods and other levels are called and how their lines look."""

from gammafl.methods.registry import entry_named, label_of, names

PER_TENSOR = " per tensor"
PER_TENSOR_COLOURS = {"top-k": "#CC79A7", "stc": "#999933"}


def label(method: str) -> str:
    """'Top-k per tensor' for 'top-k per tensor', 'Top-k, equal traffic' for 'top-k, equal traffic'."""
    for mark in (PER_TENSOR, ", "):
        base, there, rest = method.partition(mark)
        if there and base in names():
            return label_of(base) + there + rest
    return label_of(method)


def colour(method: str) -> str:
    """Of a level's lines; empty for a level that is no method."""
    base = method.removesuffix(PER_TENSOR)
    if base != method and base in PER_TENSOR_COLOURS:
        return PER_TENSOR_COLOURS[base]
    return entry_named(method).colour if method in names() else ""


def dash(method: str) -> str:
    """Of a level's lines: that of its method. FedAVG's are dashed: it is what the others are measured by."""
    base = method.removesuffix(PER_TENSOR).partition(":")[0]
    return entry_named(base).dash if base in names() else "solid"

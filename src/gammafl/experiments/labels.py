"""What methods and other levels are called."""

from gammafl.methods.registry import label_of, names

PER_TENSOR = " per tensor"


def label(method: str) -> str:
    """'Top-k per tensor' for 'top-k per tensor', 'Top-k, equal traffic' for 'top-k, equal traffic'."""
    for mark in (PER_TENSOR, ", "):
        base, there, rest = method.partition(mark)
        if there and base in names():
            return label_of(base) + there + rest
    return label_of(method)

"""The labels of methods and of other levels."""

from gammafl.methods.registry import label_of, names

PER_TENSOR = " per tensor"


def label(method: str) -> str:
    """The label of a level.

    >>> label("top-k per tensor"), label("top-k, equal traffic"), label("1%")
    ('Top-k per tensor', 'Top-k, equal traffic', '1%')
    """
    for mark in (PER_TENSOR, ", "):
        base, there, rest = method.partition(mark)
        if there and base in names():
            return label_of(base) + there + rest
    return label_of(method)

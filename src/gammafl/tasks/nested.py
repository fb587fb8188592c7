"""Tensors in tuples and dicts: batches with several inputs, or with names."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

Nested = Any
"""A tensor, None, or a tuple or dict of these."""


def leaves(tree: Nested) -> list[torch.Tensor]:
    """The tensors, in order."""
    if isinstance(tree, Mapping):
        return [leaf for part in tree.values() for leaf in leaves(part)]
    if isinstance(tree, tuple | list):
        return [leaf for part in tree for leaf in leaves(part)]
    return [] if tree is None else [tree]


def mapped(function: Callable[[torch.Tensor], torch.Tensor], tree: Nested) -> Nested:
    """The same form, with `function` applied to every tensor."""
    if isinstance(tree, Mapping):
        return {name: mapped(function, part) for name, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(mapped(function, part) for part in tree)
    return None if tree is None else function(tree)


def rows_of(tree: Nested, rows: slice) -> Nested:
    """These rows of every tensor."""
    return mapped(lambda tensor: tensor[rows], tree)


def joined(trees: Sequence[Nested]) -> Nested:
    """Trees of the same form joined into one: the rows of their tensors one after the other."""
    first = trees[0]
    if isinstance(first, Mapping):
        return {name: joined([tree[name] for tree in trees]) for name in first}
    if isinstance(first, tuple | list):
        return tuple(joined(parts) for parts in zip(*trees, strict=True))
    return None if first is None else torch.cat(list(trees))


def form_of(tree: Any) -> str:
    """The form in words: '({a, b}, tensor)'."""
    if isinstance(tree, Mapping):
        parts = ((name, form_of(part)) for name, part in sorted(tree.items()))
        named = (name if form == "tensor" else f"{name}: {form}" for name, form in parts)
        return f"{{{', '.join(named)}}}"
    if isinstance(tree, tuple):
        return f"({', '.join(map(form_of, tree))})"
    return "nothing" if tree is None else "tensor"

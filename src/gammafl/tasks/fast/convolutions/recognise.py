"""Finds blocks of a convolution, a ReLU and a max-pooling in a module that compiled loops can compute."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from gammafl.tasks.fast.convolutions.plan import Block

ENOUGH = 16
"""The least numbers in a row of a kernel for which compiled loops are used."""
LARGEST_WINDOW = 64
"""The most pixels of a pooling window, whose indices must fit into a byte."""


@dataclass(frozen=True)
class Found:
    """A block, the convolution with its weights, and its number of layers."""

    block: Block
    convolution: nn.Conv2d
    layers: int


@dataclass(frozen=True)
class Parts:
    """A module of blocks, Flatten, and linear layers, with or without a ReLU after them."""

    blocks: tuple[Found, ...]
    linear: tuple[tuple[nn.Linear, bool], ...]


def is_plain(layer: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether the layer is exactly of this class, with the class's own forward pass and without hooks."""
    hooks = layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks
    return type(layer) is kind and not any(hooks) and "forward" not in layer.__dict__


def block_of(layer: nn.Module) -> Block | None:
    """A single convolution as a block."""
    if not is_plain(layer, nn.Conv2d):
        return None
    assert isinstance(layer, nn.Conv2d)
    padding: Any = (0, 0) if layer.padding == "valid" else layer.padding
    (rows, columns), stride = layer.kernel_size, layer.stride
    usual = layer.groups == 1 and layer.dilation == (1, 1) and layer.padding_mode == "zeros"
    square = isinstance(padding, tuple) and padding[0] == padding[1] and stride[0] == stride[1]
    floats = all(parameter.dtype == torch.float32 for parameter in layer.parameters())
    if not (usual and square and floats and padding[0] < min(rows, columns)):
        return None
    bias = layer.bias is not None
    return Block(layer.in_channels, layer.out_channels, rows, columns, stride[0], int(padding[0]), bias=bias)


def fused(layers: Sequence[nn.Module]) -> Found | None:
    """The block that `layers` begin with: a convolution, and a ReLU and a pooling if they follow, in either order."""
    alone = block_of(layers[0]) if layers else None
    if alone is None:
        return None
    relu, pool, count = False, 1, 1
    for layer in layers[1:3]:
        if not relu and is_plain(layer, nn.ReLU):
            relu = True
        elif pool == 1 and (size := _pooling(layer)) > 1:
            pool = size
        else:
            break
        count += 1
    convolution = layers[0]
    assert isinstance(convolution, nn.Conv2d)
    return Found(alone.followed_by(relu, pool), convolution, count)


def block_at(layers: Sequence[nn.Module]) -> Found | None:
    """The same where that is faster than torch's layers one by one, by the measurements of docs/convolutions.md.

    With pooling it always is. Of a ReLU's gradient half counts: then kernels must be wide enough for the lists to pay.
    """
    found = fused(layers)
    if found is None or not (found.block.pool > 1 or (found.block.relu and found.block.reach >= ENOUGH)):
        return None
    return found


def _pooling(layer: nn.Module) -> int:
    """The side of the squares of a max-pooling without overlap or margin; 0 for any other layer."""
    if not is_plain(layer, nn.MaxPool2d):
        return 0
    assert isinstance(layer, nn.MaxPool2d)
    size, stride, padding, dilation = (
        (value, value) if isinstance(value, int) else tuple(value)
        for value in (layer.kernel_size, layer.stride, layer.padding, layer.dilation)
    )
    plain = padding == (0, 0) and dilation == (1, 1) and not layer.ceil_mode and not layer.return_indices
    square = size == stride and size[0] == size[1] and size[0] ** 2 <= LARGEST_WINDOW
    return size[0] if plain and square else 0


def parts_of(module: nn.Module) -> Parts | None:
    """The parts of a `Sequential`, nested or not, whose parameters are all trained; None for any other module."""
    layers = _layers(module)
    if layers is None or len(set(map(id, layers))) < len(layers):
        return None
    trained = [parameter for layer in layers for parameter in layer.parameters()]
    same = list(map(id, trained)) == list(map(id, module.parameters()))
    if not same or not all(parameter.requires_grad for parameter in trained):
        return None
    blocks, at = [], 0
    while (found := fused(layers[at:])) is not None:
        blocks.append(found)
        at += found.layers
    rest = layers[at:]
    flat = bool(rest) and is_plain(rest[0], nn.Flatten) and (rest[0].start_dim, rest[0].end_dim) == (1, -1)
    linear = _linear(rest[1:]) if flat else None
    return Parts(tuple(blocks), linear) if blocks and linear is not None else None


def _layers(module: nn.Module) -> list[nn.Module] | None:
    """The layers of nested `Sequential`s as one list."""
    if type(module) is not nn.Sequential:
        return [module]
    if not is_plain(module, nn.Sequential):
        return None
    parts = [_layers(part) for part in module]
    return None if None in parts else [layer for part in parts for layer in part or ()]


def _linear(layers: Sequence[nn.Module]) -> tuple[tuple[nn.Linear, bool], ...] | None:
    """(linear layer, whether a ReLU follows) for each; None if there is any other layer."""
    found: list[tuple[nn.Linear, bool]] = []
    for layer in layers:
        if is_plain(layer, nn.Linear) and layer.weight.dtype == torch.float32:
            assert isinstance(layer, nn.Linear)
            found.append((layer, False))
        elif is_plain(layer, nn.ReLU) and found and not found[-1][1]:
            found[-1] = (found[-1][0], True)
        else:
            return None
    return tuple(found)

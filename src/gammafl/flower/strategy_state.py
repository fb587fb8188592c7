"""What a strategy remembers from round to round: the attributes that have changed since it was made."""

import hashlib
import inspect
import logging
import os
from collections.abc import Collection, Iterator
from functools import partial
from typing import Any

import numpy as np
from flwr.serverapp.strategy import Strategy

from gammafl.core.errors import InputError
from gammafl.flower.packing import NotPlainError, Packer, unpack

HOOKS = ("configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate")
"""What a strategy does in a round."""

PART = "."
"""Between the name of a strategy inside another and that of its attribute."""


class StrategyState:
    """The state of one strategy, and of strategies inside it.

    Numbers, texts, arrays, tensors, records and containers of them are state, and what has a `state_dict`. Functions,
    classes, loggers and paths are settings: they come from the app. Anything else is refused, unless it is one of
    `stateless`. Make this before the first round: what has not changed since is a setting too, which the app may
    change between two starts.

    >>> from flwr.serverapp.strategy import FedAdam
    >>> strategy = FedAdam(eta=0.1)
    >>> state = StrategyState(strategy)
    >>> strategy.m_t = {"weight": np.ones(2)}
    >>> packer = Packer()
    >>> packed = state.pack(packer)
    >>> list(packed)
    ['m_t']
    >>> other = FedAdam(eta=0.2)
    >>> StrategyState(other).restore(packed, packer.tensors)
    >>> other.m_t, other.eta
    ({'weight': array([1., 1.])}, 0.2)
    """

    def __init__(self, strategy: Strategy, stateless: Collection[str] = ()) -> None:
        self._strategy, self._stateless = strategy, frozenset(stateless)
        self._first = {name: self._looks(name, value) for name, value in self._attributes(strategy)}
        self._changed: set[str] = set()

    def pack(self, packer: Packer) -> dict[str, Any]:
        """What there is to store, by the names of the attributes."""
        packed = {}
        for name, value in self._attributes(self._strategy):
            if name in self._changed or self._first.get(name) != self._looks(name, value):
                packed[name] = packer.pack(_plain(value), name)
        self._changed |= packed.keys()
        return packed

    def restore(self, packed: dict[str, Any], tensors: Any) -> None:
        """The strategy remembers what `pack` was given of it, or of one that was made alike."""
        for name, value in packed.items():
            owner: Any = self._strategy
            *inside, attribute = name.split(PART)
            for part in inside:
                owner = getattr(owner, part)
            state, there = unpack(value, tensors), vars(owner).get(attribute)
            if _has_state_dict(there):
                there.load_state_dict(state)
            else:
                vars(owner)[attribute] = state
        self._changed |= packed.keys()

    def _attributes(self, strategy: Strategy, prefix: str = "") -> Iterator[tuple[str, Any]]:
        for name, value in vars(strategy).items():
            if isinstance(value, Strategy):
                yield from self._attributes(value, f"{prefix}{name}{PART}")
            elif name not in HOOKS and not _is_setting(value) and prefix + name not in self._stateless:
                yield prefix + name, value

    def _looks(self, name: str, value: Any) -> tuple[Any, str]:
        """By which a value is known again, though its arrays may change in place."""
        packer, digest = Packer(), hashlib.blake2b()
        try:
            packed = packer.pack(_plain(value), name)
        except NotPlainError as error:
            raise InputError(
                f"the strategy's state can't be stored: {error}, is neither a plain value nor an array. Give it a"
                f" state_dict() and a load_state_dict(); or, if no later round depends on it, write"
                f" Compressed(…, stateless=[{name!r}])"
            ) from None
        for tensor in packer.tensors.values():
            digest.update(np.ascontiguousarray(tensor).data)
        return packed, digest.hexdigest()


def _is_setting(value: Any) -> bool:
    kinds = (type, partial, logging.Logger, os.PathLike)
    return isinstance(value, kinds) or inspect.isroutine(value) or inspect.ismodule(value)


def _has_state_dict(value: Any) -> bool:
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict") and not isinstance(value, type)


def _plain(value: Any) -> Any:
    return value.state_dict() if _has_state_dict(value) else value

"""The state of a strategy: its attributes that have changed since it was made."""

import hashlib
import inspect
import logging
import os
from collections.abc import Collection, Iterator
from functools import partial
from typing import Any

import numpy as np
from flwr.serverapp.strategy import Strategy

from gammafl.core.errors import InputError, require
from gammafl.flower.packing import KIND, NotPlainError, Packer, unpack

HOOKS = ("configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate")
"""The methods of a strategy that a round calls."""

GONE = "gone"
"""The kind of an attribute that the strategy had at first and no longer has."""

PART = "."
"""Separates the name of an inner strategy from the name of its attribute."""


class StrategyState:
    """The state of one strategy, and of strategies inside it.

    Numbers, texts, arrays, tensors, records, containers of them and objects with a `state_dict` are state. Functions,
    classes, loggers and paths are settings, which come from the app. All other values are refused, unless their name
    is in `stateless`. Make a StrategyState before the first round. An attribute that has not changed since then is a
    setting too: the app may change it between two starts.

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
        there = dict(self._attributes(strategy))
        self._loads = {name for name, value in there.items() if _has_state_dict(value)}
        self._first = {name: self._looks(name, value) for name, value in there.items()}
        self._changed: set[str] = set()

    def pack(self, packer: Packer) -> dict[str, Any]:
        """Name → packed value, for the attributes that must be stored."""
        there, packed = dict(self._attributes(self._strategy)), {}
        for name, value in there.items():
            if name in self._changed or self._first.get(name) != self._looks(name, value):
                packed[name] = self._packed(name, value, packer)
        for name in (self._first.keys() | self._changed) - there.keys():
            packed[name] = {KIND: GONE}
        self._changed |= packed.keys()
        return packed

    def restore(self, packed: dict[str, Any], tensors: Any) -> None:
        """Sets the attributes that `pack` returned for this strategy, or for one that was made in the same way."""
        for name, value in packed.items():
            owner: Any = self._strategy
            *inside, attribute = name.split(PART)
            for part in inside:
                owner = _own(owner)[part]
            there: Any = _own(owner).get(attribute)
            if isinstance(value, dict) and value.get(KIND) == GONE:
                if attribute in _own(owner):
                    object.__delattr__(owner, attribute)
            elif _has_state_dict(there):
                there.load_state_dict(unpack(value, tensors))
            elif attribute in _slots(owner):
                object.__setattr__(owner, attribute, unpack(value, tensors))
            else:
                vars(owner)[attribute] = unpack(value, tensors)
        self._changed |= packed.keys()

    def _attributes(
        self, strategy: Strategy, prefix: str = "", outside: tuple[Any, ...] = ()
    ) -> Iterator[tuple[str, Any]]:
        for name, value in _own(strategy).items():
            if isinstance(value, Strategy):
                if not any(value is other for other in (*outside, strategy)):  # an inner one may refer to an outer one
                    yield from self._attributes(value, f"{prefix}{name}{PART}", (*outside, strategy))
            elif name not in HOOKS and not _is_setting(value) and prefix + name not in self._stateless:
                require(PART not in name, f"the strategy's state can't be stored: rename {name!r}, it has a dot")
                yield prefix + name, value

    def _looks(self, name: str, value: Any) -> tuple[Any, str]:
        """A value's form and digest, to notice later whether it has changed. Its arrays may change in place."""
        packer, digest = Packer(), hashlib.blake2b()
        packed = self._packed(name, value, packer)
        for tensor in packer.tensors.values():
            digest.update(np.ascontiguousarray(tensor).data)
        return packed, digest.hexdigest()

    def _packed(self, name: str, value: Any, packer: Packer) -> Any:
        if _has_state_dict(value) and name not in self._loads:
            raise InputError(
                f"the strategy's state can't be stored: {name}, a {type(value).__qualname__}, was made after the start:"
                " a restart could not load its state_dict. Make it in the strategy's __init__"
            )
        try:
            return packer.pack(_plain(value), name)
        except (NotPlainError, RecursionError) as error:
            what = f"{name}, which holds itself" if isinstance(error, RecursionError) else error
            raise InputError(
                f"the strategy's state can't be stored: {what}, is neither a plain value nor an array. Give it a"
                f" state_dict() and a load_state_dict(); or, if no later round depends on it, write"
                f" Compressed(…, stateless=[{name!r}])"
            ) from None


def _slots(owner: Any) -> set[str]:
    """The names of an object's attributes in `__slots__`, which its `__dict__` does not have."""
    found = [(kind, vars(kind).get("__slots__", ())) for kind in type(owner).__mro__]
    named = [(kind, name) for kind, slots in found for name in ([slots] if isinstance(slots, str) else slots)]
    return {_mangled(name, kind) for kind, name in named} - {"__dict__", "__weakref__"}


def _mangled(name: str, kind: type) -> str:
    """Python's name of an attribute that a class calls `name`: for `__this`, it has the name of the class in front."""
    private = name.startswith("__") and not name.endswith("__")
    return f"_{kind.__name__.lstrip('_')}{name}" if private else name


def _own(owner: Any) -> dict[str, Any]:
    """Name → value of an object's own attributes, not those of its class."""
    slots = {name: getattr(owner, name) for name in sorted(_slots(owner)) if hasattr(owner, name)}
    return {**slots, **vars(owner)}


def _is_setting(value: Any) -> bool:
    kinds = (type, partial, logging.Logger, os.PathLike)
    return isinstance(value, kinds) or inspect.isroutine(value) or inspect.ismodule(value)


def _has_state_dict(value: Any) -> bool:
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict") and not isinstance(value, type)


def _plain(value: Any) -> Any:
    return value.state_dict() if _has_state_dict(value) else value

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

from gammafl.core.errors import InputError, require
from gammafl.flower.packing import KIND, NotPlainError, Packer, unpack

HOOKS = ("configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate")
"""What a strategy does in a round."""

GONE = "gone"
"""The kind of an attribute that the strategy had at first, and has no more."""

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
        there = dict(self._attributes(strategy))
        self._loads = {name for name, value in there.items() if _has_state_dict(value)}
        self._first = {name: self._looks(name, value) for name, value in there.items()}
        self._changed: set[str] = set()

    def pack(self, packer: Packer) -> dict[str, Any]:
        """What there is to store, by the names of the attributes."""
        there, packed = dict(self._attributes(self._strategy)), {}
        for name, value in there.items():
            if name in self._changed or self._first.get(name) != self._looks(name, value):
                packed[name] = self._packed(name, value, packer)
        for name in (self._first.keys() | self._changed) - there.keys():
            packed[name] = {KIND: GONE}
        self._changed |= packed.keys()
        return packed

    def restore(self, packed: dict[str, Any], tensors: Any) -> None:
        """The strategy remembers what `pack` was given of it, or of one that was made alike."""
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
                if not any(value is other for other in (*outside, strategy)):  # one inside may know the one outside
                    yield from self._attributes(value, f"{prefix}{name}{PART}", (*outside, strategy))
            elif name not in HOOKS and not _is_setting(value) and prefix + name not in self._stateless:
                require(PART not in name, f"the strategy's state can't be stored: rename {name!r}, it has a dot")
                yield prefix + name, value

    def _looks(self, name: str, value: Any) -> tuple[Any, str]:
        """By which a value is known again, though its arrays may change in place."""
        packer, digest = Packer(), hashlib.blake2b()
        packed = self._packed(name, value, packer)
        for tensor in packer.tensors.values():
            digest.update(np.ascontiguousarray(tensor).data)
        return packed, digest.hexdigest()

    def _packed(self, name: str, value: Any, packer: Packer) -> Any:
        if _has_state_dict(value) and name not in self._loads:
            raise InputError(
                f"the strategy's state can't be stored: {name}, a {type(value).__qualname__}, was made after the start,"
                " so that a restart would find nothing to load its state_dict into; make it in the strategy's __init__"
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
    """The names that a class keeps beside the attributes of its `__dict__`."""
    found = [(kind, vars(kind).get("__slots__", ())) for kind in type(owner).__mro__]
    named = [(kind, name) for kind, slots in found for name in ([slots] if isinstance(slots, str) else slots)]
    return {_mangled(name, kind) for kind, name in named} - {"__dict__", "__weakref__"}


def _mangled(name: str, kind: type) -> str:
    """What Python calls an attribute that is written as `name` in a class: `__this` gets the name of the class."""
    private = name.startswith("__") and not name.endswith("__")
    return f"_{kind.__name__.lstrip('_')}{name}" if private else name


def _own(owner: Any) -> dict[str, Any]:
    """The attributes that an object has itself."""
    slots = {name: getattr(owner, name) for name in sorted(_slots(owner)) if hasattr(owner, name)}
    return {**slots, **vars(owner)}


def _is_setting(value: Any) -> bool:
    kinds = (type, partial, logging.Logger, os.PathLike)
    return isinstance(value, kinds) or inspect.isroutine(value) or inspect.ismodule(value)


def _has_state_dict(value: Any) -> bool:
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict") and not isinstance(value, type)


def _plain(value: Any) -> Any:
    return value.state_dict() if _has_state_dict(value) else value

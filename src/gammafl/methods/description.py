"""Methods as JSON: with it, a server tells its clients which method to use.

A description never holds code. A method from a factory is described by the factory's name and its settings; the client
looks the name up in its own registry. A method that was put together by hand is described part by part, if all its
parts belong to this package.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from inspect import isabstract
from typing import Any

from gammafl.core.compressors import Compressor
from gammafl.core.errors import GammaflError, InputError, require
from gammafl.core.levels import Level
from gammafl.core.memory import Memory
from gammafl.core.method import Method, is_ours
from gammafl.core.values import Values
from gammafl.methods.registry import REGISTRY, Entry, entry_named, load, named, wire_name

PARTS = ("compressor", "memory", "values", "level")


@cache
def kinds() -> dict[str, type[Any]]:
    """Name → class of all parts that a description can have: the dataclasses of this package."""
    load()
    found: list[type[Any]] = [Compressor, Memory, Values, Level]
    for kind in found:
        found += kind.__subclasses__()
    return {kind.__name__: kind for kind in found if is_ours(kind) and is_dataclass(kind) and not isabstract(kind)}


def describe(method: Method) -> str:
    """One line of JSON, from which `build` makes the same method."""
    if method.factory_made:
        return json.dumps({"method": wire_name(method.name), "settings": dict(method.settings or ())}, sort_keys=True)
    return json.dumps({part: _table(getattr(method, part)) for part in PARTS}, sort_keys=True)


def build(description: str, own: Mapping[str, Entry] | None = None) -> Method:
    """The method of a description, from `own` entries and the registry. An `InputError` if it is malformed."""
    try:
        table = json.loads(description)
        if "method" in table:
            name, settings = str(table["method"]), table["settings"]
            require(isinstance(settings, dict), "settings must be a table")
        else:
            return Method(**{part: _value(table[part]) for part in PARTS})
    except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError) as error:
        raise InputError(f"not the description of a method ({error}): {description[:200]}") from None
    entry = own[name] if own and name in own else _registered(name)
    try:
        return entry.make(settings)
    except GammaflError:
        raise
    except Exception as error:  # a user's own function, with settings from another machine
        raise InputError(f"the method {name} can't be made ({type(error).__name__}: {error})") from None


def own_entries(methods: Iterable[Callable[..., Any]]) -> dict[str, Entry]:
    """Name → entry for a side's own factories. The name is the same on the other side."""
    require(not callable(methods), "methods= takes a list of functions that return a method")
    entries = {}
    for factory in methods:
        known = next((entry for entry in REGISTRY.values() if entry.factory is factory), None)
        name = known.name if known else getattr(factory, "__name__", "")
        if not callable(factory) or not name:
            raise InputError(f"methods= takes functions that return a method, got {factory!r}")
        entries[name] = known or Entry(name, named(name, factory), name, "")
    return entries


def _registered(name: str) -> Entry:
    try:
        return entry_named(name.rpartition(":")[2])
    except InputError:
        raise InputError(
            f"the server uses the method {name[:80]!r}, which this client does not know: give its function to"
            " gammafl.flower.compress(methods=[…]), or install the package that registers it"
        ) from None


def _table(value: Any) -> Any:
    if is_dataclass(value) and type(value) is kinds().get(type(value).__name__):
        return {"kind": type(value).__name__} | {f.name: _table(getattr(value, f.name)) for f in fields(value)}
    if value is None or isinstance(value, str | int | float):
        return value
    raise InputError(
        f"{value!r} can't be described to clients by itself. Put @gf.register(…) above the function that makes the"
        " method, or give that function instead of its result. Give it to compress(methods=[…]) on the clients too"
    )


def _value(table: Any) -> Any:
    if isinstance(table, dict):
        kind = table.pop("kind", None)
        if kind not in kinds():
            raise InputError(f"no kind {kind!r}; install the same gammafl on server and clients")
        return kinds()[kind](**{name: _value(part) for name, part in table.items()})
    return table

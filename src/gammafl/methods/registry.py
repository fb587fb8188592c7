"""The registry: name → method, with facts for tables, pictures and cards.

A factory is a function of hyperparameters that returns a `Method`. `register` gives it a name. Other packages register
theirs with the entry point group `gammafl.methods`. Users can also name a function in a file: `file.py:function`.
"""

import inspect
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, wraps
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, ParamSpec, get_args, get_type_hints

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError

from gammafl.core.compressors import Compressor
from gammafl.core.errors import InputError, require
from gammafl.core.memory import ErrorFeedback, NoMemory
from gammafl.core.method import Method, Setting, as_method
from gammafl.core.names import did_you_mean, require_settings
from gammafl.methods.files import function_in_file, is_file
from gammafl.methods.promises import Promise

Parameters = ParamSpec("Parameters")
Factory = Callable[..., Method]

GROUP = "gammafl.methods"
"""The entry point group: name = "package.module:factory"."""

NAME = re.compile(r"[A-Za-z0-9._-]{1,60}")
COLOUR = re.compile(r"#[0-9A-Fa-f]{6}")

LONG_LABEL = 60
"""The most letters of a label that is made from an expression."""

SPARE_COLOURS = ("#CC79A7", "#882255", "#44AA99", "#999933", "#AA4499", "#332288", "#661100", "#888888")
"""Colours for methods without a colour of their own. Colour-blind readers can tell them apart."""

DASHES = ("solid", "dash", "dot", "dashdot")
"""Dashes of lines, since there are more methods than colours that all readers can tell apart."""


UNTUNED = "untuned: no better settings were searched for"

NOTHING_TO_TUNE = "nothing to tune: `keep` is the traffic that you can afford"
KEEPS = (0.001, 0.003, 0.01, 0.03)
"""Kept fractions that are worth trying, unless a method has its own."""

Ranges = Mapping[str, Sequence[Setting]]
"""Setting → the values that are worth trying, from the least to the most."""


@dataclass(frozen=True)
class Entry:
    """A registered method: its factory, its look, and its card.

    label      its name in print
    colour     the colour of its lines
    citation   where it was published
    follows    the method that determines how many entries this one keeps, in a comparison at equal traffic
    dash       the dash of its lines: one of `DASHES`
    cost       the cost to compress a vector, in passes over it
    memory     what clients and server keep between uploads; not needed for error feedback and for no memory
    promise    its declared property
    tuned      how its default settings were found
    ranges     settings that are worth trying; `gammafl pareto` runs all values of the first
    """

    name: str
    factory: Factory
    label: str
    colour: str
    citation: str = ""
    follows: str | None = None
    dash: str = "solid"
    cost: str = ""
    memory: str = ""
    promise: Promise | None = None
    tuned: str = UNTUNED
    ranges: Ranges = field(default_factory=dict)

    @property
    def about(self) -> str:
        """The first paragraph of its docstring: what it does."""
        return inspect.cleandoc(self.factory.__doc__ or "")

    @property
    def parameters(self) -> dict[str, Setting]:
        """Hyperparameter → default."""
        return {name: p.default for name, p in inspect.signature(self.factory).parameters.items()}

    @property
    def defaults(self) -> dict[str, Setting]:
        """Hyperparameter → default, for those that have one that is not None."""
        return {key: value for key, value in self.parameters.items() if value not in (None, inspect.Parameter.empty)}

    @property
    def what(self) -> str:
        """The first sentence of its docstring."""
        return self.about.partition("\n\n")[0].replace("\n", " ")

    @property
    def needs(self) -> list[str]:
        """The settings that must be given."""
        return [key for key, default in self.parameters.items() if default is inspect.Parameter.empty]

    @property
    def state(self) -> str:
        """What client and server keep between uploads."""
        if self.memory or self.needs:
            return self.memory
        method = self.factory()
        if type(method.memory) is NoMemory or not method.leaves_a_rest:
            return "none"
        return "client: d floats, the residual" if type(method.memory) is ErrorFeedback else ""

    def has(self, key: str, value: Setting) -> bool:
        """Whether it has this hyperparameter, and its default and `value` are both words or both not."""
        default = self.parameters.get(key, value)
        plain = default is None or default is inspect.Parameter.empty
        return key in self.parameters and (plain or isinstance(default, str) == isinstance(value, str))

    def make(self, settings: Mapping[str, Setting]) -> Method:
        """The method with these hyperparameters. An `InputError` of one line names a wrong one."""
        require_settings(self.name, settings, self.parameters)
        for key, value in settings.items():
            _check_type(self, key, value)
        for key in self.needs:
            require(key in settings, f"{self.name} needs {key}: write {self.name}:{key}=…")
        return self.factory(**settings)


REGISTRY: dict[str, Entry] = {}


def register(
    name: str,
    *,
    label: str = "",
    colour: str = "",
    citation: str = "",
    follows: str | None = None,
    dash: str = "solid",
    cost: str = "",
    memory: str = "",
    promise: Promise | None = None,
    tuned: str = UNTUNED,
    ranges: Ranges | None = None,
) -> Callable[[Callable[Parameters, Method]], Callable[Parameters, Method]]:
    """A decorator that registers a factory of methods. Only the name is required.

    name       the name to type: letters, digits, dots and dashes
    label      its name in print; by default `name`
    colour     the colour of its lines, "#rrggbb"; by default an unused one
    citation   where it was published
    follows    the name of the method that determines how many entries this one keeps, in a comparison at equal traffic.
               The factory then gets this number as `k`
    dash       the dash of its lines: "solid", "dash", "dot" or "dashdot"
    cost       the cost to compress a vector: "O(d), 2 passes"
    memory     what client and server keep between uploads; not needed for error feedback and for no memory
    promise    its declared property (`methods/promises.py`)
    tuned      how its default settings were found; by default "untuned"
    ranges     setting → the values that are worth trying, from the least to the most. `gammafl pareto` runs all values
               of the first setting

    Returns a decorator, for a function that returns a `gf.Method`.

    >>> from gammafl.core.compressors import TopK
    >>> @register("every-tenth", label="every tenth")
    ... def every_tenth(keep: float = 0.1) -> Method:
    ...     return Method(TopK(keep))
    >>> method_named("every-tenth:keep=0.2").compressor
    TopK(k=0.2, scope='global')
    """

    require(not colour or bool(COLOUR.fullmatch(colour)), f"a colour is written #rrggbb, got {colour!r}")
    require(dash in DASHES, f"a dash is one of {', '.join(DASHES)}, got {dash!r}")
    require(bool(NAME.fullmatch(name)), f"a method's name has letters, digits, dots and dashes, got {name!r}")

    def decorate(factory: Callable[Parameters, Method]) -> Callable[Parameters, Method]:
        ours = factory.__module__ == f"{__package__}.{OURS.get(name)}"
        require(ours or name not in OURS, f"{name!r} is the name of a method of gammafl; choose another")
        made = named(name, factory)
        chosen = colour or SPARE_COLOURS[len(REGISTRY) % len(SPARE_COLOURS)]
        entry = Entry(
            name, made, label or name, chosen, citation, follows, dash, cost, memory, promise, tuned, dict(ranges or {})
        )
        unknown = [key for key in entry.ranges if key not in entry.parameters]
        require(not unknown, f"{name}: ranges name {', '.join(unknown)}, which the function has no parameter for")
        REGISTRY[name] = entry
        return made

    return decorate


def named(name: str, factory: Callable[Parameters, Any]) -> Callable[Parameters, Method]:
    """`factory`, whose methods know its name and their settings."""
    signature = inspect.signature(factory)

    @wraps(factory)
    def make(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Method:
        given = signature.bind(*args, **kwargs).arguments
        defaults = {key: parameter.default for key, parameter in signature.parameters.items()}
        plain = {key: value.item() if isinstance(value, np.generic) else value for key, value in given.items()}
        changed = tuple((key, value) for key, value in plain.items() if repr(value) != repr(defaults[key]))
        return replace(as_method(factory(*args, **kwargs)), name=name, settings=changed)

    return make


def entry_named(name: str) -> Entry:
    """The entry of a name, of an expression, or of `file.py:function`."""
    name = split_expression(name)[0]
    if is_file(name):
        return _entry_of_file(name)
    load()
    if name in _broken:
        raise InputError(f"the method {name!r} of an installed package can't be loaded ({_broken[name]})")
    if name not in REGISTRY:
        raise InputError(
            f"no method {name!r}{did_you_mean(name, REGISTRY)}; the methods are {', '.join(names())}, or your own"
            " as file.py:function"
        )
    return REGISTRY[name]


def method_named(expression: str, settings: Mapping[str, Setting] | None = None, **defaults: Setting) -> Method:
    """The method with a name.

    expression   a name, an expression such as `top-k:keep=0.001,scope=tensor`, or `file.py:function`
    settings     further hyperparameters
    defaults     hyperparameters that are used if the method has them and they are not set otherwise

    Returns a `gf.Method`.

    >>> method_named("top-k:scope=tensor", keep=0.001)
    Method(TopK(k=0.001, scope='tensor'))
    """
    name, written = split_expression(expression)
    entry = entry_named(name)
    wanted = {**(settings or {}), **written}
    usable = {key: value for key, value in defaults.items() if key not in wanted and entry.has(key, value)}
    return entry.make({**usable, **wanted})


def resolve(value: Any, **defaults: Setting) -> Method:
    """`value` as a method. It may be a method, a compressor, a name, an expression, or a function that makes one.

    `defaults` are for names, as in `method_named`.
    """
    if isinstance(value, str):
        return method_named(value, None, **defaults)
    if callable(value) and not isinstance(value, Method | Compressor | type):
        method = as_method(value())
        return method if method.factory_made else named(getattr(value, "__name__", "own"), value)()
    return as_method(value)


def split_expression(expression: str) -> tuple[str, dict[str, Setting]]:
    """`top-k:keep=0.001,scope=tensor` → ("top-k", {"keep": 0.001, "scope": "tensor"})."""
    name, colon, settings = expression.partition(":")
    if name.endswith(".py"):
        function, colon, settings = settings.partition(":")
        require(bool(function), f"which function of {name} makes the method? Give {name}:FUNCTION")
        name = f"{name}:{function}"
    if not colon:
        return name, {}
    table: dict[str, Setting] = {}
    for part in settings.split(","):
        key, equals, value = part.partition("=")
        require(bool(equals and key), f"{expression!r}: settings are written key=value, such as top-k:keep=0.001")
        table[key.strip()] = _parsed(value.strip())
    return name, table


def split_list(text: str) -> list[str]:
    """`a,top-k:keep=0.1,scope=tensor,b` → its three methods. A part with = but no : belongs to the previous one."""
    methods: list[str] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        if "=" in part and ":" not in part and methods:
            methods[-1] += f",{part}"
        else:
            methods.append(part)
    return methods


def label_of(method: str) -> str:
    """The name in print of a method or an expression: 'Top-k, scope=tensor'.

    A method that is not registered here, such as one put together by hand, has only its own name.
    """
    try:
        name, settings = split_expression(method)
        label = entry_named(name).label
    except InputError:
        return method if len(method) <= LONG_LABEL else method[: LONG_LABEL - 1] + "…"
    return ", ".join([label, *(f"{key}={value}" for key, value in settings.items())])


Look = tuple[str, str]
"""Colour and dash of a line."""


def looks_of(methods: Sequence[str]) -> dict[str, Look]:
    """Method → its look in a picture: its own, or a spare colour if another method already has that look.

    If there are too few colours, the dashes differ.
    """
    looks: dict[str, Look] = {}
    for method in methods:
        try:
            entry = entry_named(method)
            own, dash = [entry.colour], entry.dash
        except InputError:  # not registered here
            own, dash = [], "solid"
        used = {colour for colour, _ in looks.values()}
        fresh = [(colour, dash) for colour in (*own, *SPARE_COLOURS) if colour not in used]
        others = [(colour, other) for other in (dash, *DASHES) for colour in (*own, *SPARE_COLOURS)]
        looks[method] = next((look for look in (*fresh, *others) if look not in looks.values()), others[0])
    return looks


def methods_in(text: str | None) -> list[str]:
    """The methods of a list that a user typed; `USUAL` without one. "all" means all methods that need no setting.

    >>> methods_in("ht,top-k:keep=0.1"), set(USUAL) < set(methods_in("all")) == set(methods_in("fedavg,all"))
    (['ht', 'top-k:keep=0.1'], True)
    """
    if text is None:
        return list(USUAL)
    found = split_list(text)
    everything = [name for name in names() if not entry_named(name).needs] if ALL in found else []
    return list(dict.fromkeys([*everything, *(name for name in found if name != ALL)]))


def names() -> list[str]:
    """All registered names, those of this package first."""
    load()
    return [*OURS, *(name for name in REGISTRY if name not in OURS)]


OURS = {
    "gamma-fedht": "gamma_fedht",
    "gamma-fedht-q": "gamma_fedht",
    "gamma-fedht-s": "shifted",
    "ht": "hard_threshold",
    "top-k": "top_k",
    "stc": "stc",
    "sidco": "sidco",
    "dagc-r": "dagc",
    "dagc-a": "dagc",
    "ef-sign": "ef_sign",
    "terngrad": "terngrad",
    "rand-k": "rand_k",
    "qsgd": "qsgd",
    "quantised": "quantised",
    "drive": "drive",
    "ef21": "shifted",
    "dgc": "dgc",
    "fedavg": "fedavg",
}
"""Name → the module of this package that registers it, in the order of tables."""

USUAL = ("gamma-fedht", "gamma-fedht-q", "ht", "top-k", "stc", "fedavg")
"""The paper's methods, which are compared by default."""

ALL = "all"

_broken: dict[str, str] = {}
"""Entry point → why it can't be loaded."""


@cache
def load() -> None:
    """Registers the methods of this package, then those of installed packages."""
    for file in OURS.values():
        import_module(f"gammafl.methods.{file}")
    for point in entry_points(group=GROUP):
        try:
            factory = point.load()
        except Exception as error:  # another package's error is shown when its method is used
            _broken[point.name] = f"{type(error).__name__}: {error}"
            continue
        if point.name not in REGISTRY:  # otherwise the factory has registered itself
            register(point.name)(factory)


def wire_name(name: str) -> str:
    """A method's name on other machines. For `file.py:function`, its registered name or the function's name."""
    known = _registered_as(function_in_file(name)) if is_file(name) else None
    return known.name if known else name.rpartition(":")[2]


def _registered_as(function: Callable[..., Any]) -> Entry | None:
    return next((entry for entry in REGISTRY.values() if entry.factory is function), None)


@cache
def _entry_of_file(name: str) -> Entry:
    function = function_in_file(name)
    known = _registered_as(function)
    factory = named(name, inspect.unwrap(function))
    if known is not None:  # registered by @gf.register in the file
        return replace(known, name=name, factory=factory)
    label = name.rpartition(":")[2].replace("_", " ")
    return Entry(name, factory, label, SPARE_COLOURS[zlib.crc32(name.encode()) % len(SPARE_COLOURS)])


def _parsed(text: str) -> Setting:
    """The value of a setting that a user typed: a number, true or false, or a word."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _check_type(entry: Entry, key: str, value: Setting) -> None:
    """Refuses a value whose type differs from the factory's signature. Without types, all values are accepted."""
    hint = get_type_hints(inspect.unwrap(entry.factory)).get(key, Any)
    try:
        TypeAdapter(hint, config=ConfigDict(strict=True)).validate_python(value)
    except ValidationError:
        options = get_args(hint)
        wanted = " or ".join(repr(option) if isinstance(option, str) else _type_name(option) for option in options)
        raise InputError(f"{entry.name}: {key} must be {wanted or _type_name(hint)}, got {value!r}") from None


def _type_name(hint: Any) -> str:
    words = {int: "a whole number", float: "a number", str: "a word", bool: "true or false", type(None): "unset"}
    return words.get(hint, getattr(hint, "__name__", str(hint)))

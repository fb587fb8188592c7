"""What clients may send, as users write it: "64 kB/upload", "20 MB/run", "2 kB/s".

Several are separated by commas. `federated/budget.py` and `federated/level.py` enforce it.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np

from gammafl.core.errors import InputError, require
from gammafl.core.inputs import is_number

Spread = Literal["front", "even", "gamma"]
FRONT: Spread = "front"

UNITS: dict[str, int | Fraction] = {
    "B": 1,
    "byte": 1,
    "bytes": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "bit": Fraction(1, 8),
    "kbit": 125,
    "Mbit": 125_000,
    "Gbit": 125_000_000,
}
"""Bytes of each unit."""

EXAMPLE = '"64 kB/upload", "20 MB/run", "2 kB/s", or several with commas between'
NUMBER = r"([0-9]{1,400}(?:\.[0-9]{1,400})?(?:[eE]\+?[0-9]{1,2})?)"
SIZE = re.compile(NUMBER + r"\s*([A-Za-z]+)\s*/\s*(upload|run|s)")
SECONDS = re.compile(NUMBER + r"\s*s\s*/\s*round")
LARGEST = 2**62
LONG = 20
"""Letters of a number that nobody has so many clients for."""


@dataclass(frozen=True)
class Budget:
    """What clients may send.

    upload          the most bytes of an upload
    run             the bytes of all uploads of a run together: the run uses them up
    rate            bytes per second for each client: an upload has at most the bytes since the client's last upload
    round_seconds   how long a round takes; needed for a rate in a simulated run
    spread          how a run's bytes are spread over its rounds: "front" (1.5 times the average at first, 0.5 times at
                    the end), "even", or "gamma" (like the stepsize)

    >>> Budget.of("64 kB/upload, 20 MB/run")
    Budget('64 kB/upload, 20 MB/run')
    >>> Budget.of("1 Mbit/s, 30 s/round").rate
    125000.0
    """

    upload: int | None = None
    run: int | None = None
    rate: float | None = None
    round_seconds: float | None = None
    spread: Spread = FRONT

    def __post_init__(self) -> None:
        for name in ("upload", "run"):
            size: Any = getattr(self, name)
            whole = size is None or (isinstance(size, int | np.integer) and is_number(size) and 1 <= size <= LARGEST)
            require(bool(whole), f"budget: {name} must be a whole number of bytes, at least 1, got {size!r}")
            object.__setattr__(self, name, None if size is None else int(size))
        for name in ("rate", "round_seconds"):
            number = getattr(self, name)
            positive = number is None or (is_number(number) and 0 < number <= LARGEST)
            require(positive, f"budget: {name} must be a positive number, got {number!r}")
            object.__setattr__(self, name, None if number is None else float(number))
        known = get_args(Spread)
        require(self.spread in known, f"budget: spread must be one of {', '.join(known)}, got {self.spread!r}")
        unspread = self.spread != FRONT and self.run is None
        require(not unspread, f"budget: {self.spread!r} spreads a run's bytes; say how many, such as 20 MB/run")

    @classmethod
    def of(cls, value: Any) -> "Budget":
        """`value` as a budget: a `Budget`, its text, or None for no budget."""
        if value is None or isinstance(value, cls):
            return value or NO_BUDGET
        require(isinstance(value, str), f"a budget is a text such as {EXAMPLE}; got {value!r}")
        found: dict[str, Any] = {}
        for part in value.split(","):
            name, number = _parsed(part.strip(), value)
            require(name not in found, f"the budget {value!r} gives {name.replace('_', ' ')} twice")
            found[name] = number
        return cls(**found)

    def __str__(self) -> str:
        """The text that a user would write."""
        parts = [f"{_shown(getattr(self, name))}/{name}" for name in ("upload", "run") if getattr(self, name)]
        parts += [f"{_plain(self.rate)} B/s"] if self.rate else []
        parts += [f"{_plain(self.round_seconds)} s/round"] if self.round_seconds else []
        return ", ".join([*parts, *([] if self.spread == FRONT else [self.spread])])

    def __repr__(self) -> str:
        return f"Budget({str(self)!r})"

    def within(self, other: "Budget") -> "Budget":
        """Both budgets together, for one client: of each number, the smaller one counts."""
        return replace(
            self,
            upload=_smaller(self.upload, other.upload),
            rate=_smaller(self.rate, other.rate),
            round_seconds=self.round_seconds or other.round_seconds,
        )


NO_BUDGET = Budget()


@dataclass(frozen=True)
class Budgets:
    """The budgets of a run: one for all clients, and further ones for single clients.

    >>> budgets = Budgets.of({"all": "20 MB/run, 1 kB/upload", 3: "200 B/upload"}, clients=10)
    >>> budgets.of_client(0), budgets.of_client(3)
    (Budget('1 kB/upload, 20 MB/run'), Budget('200 B/upload, 20 MB/run'))
    """

    all: Budget = NO_BUDGET
    own: Mapping[int, Budget] = field(default_factory=dict)

    @classmethod
    def of(cls, value: Any, clients: int | None = None) -> "Budgets":
        """From one budget for all, a list with one for each client, or client → budget, with "all" for all clients."""
        if isinstance(value, cls):
            return value
        if isinstance(value, Mapping):
            named = dict(value)
        elif isinstance(value, Sequence) and not isinstance(value, str):
            require(clients in (None, len(value)), f"{len(value)} budgets for {clients} clients")
            named = dict(enumerate(value))
        else:
            return cls(Budget.of(value))
        together = Budget.of(named.pop("all", None))
        own = {_client(key, clients): Budget.of(text) for key, text in named.items() if text is not None}
        for client, budget in own.items():
            require(
                budget.run is None, f'client {client}: a run\'s bytes are for all clients; write {{"all": "{budget}"}}'
            )
        return cls(together, own)

    def __bool__(self) -> bool:
        return bool(self.own) or self.all != NO_BUDGET

    def of_client(self, client: int) -> Budget:
        """The budget of one client, with the one for all."""
        return self.all.within(self.own[client]) if client in self.own else self.all

    def table(self) -> dict[str, str] | None:
        """The budgets as plain values, which `of` reads; None if there is no budget."""
        together = {} if self.all == NO_BUDGET else {"all": str(self.all)}
        return {**together, **{str(client): str(budget) for client, budget in sorted(self.own.items())}} or None


NO_BUDGETS = Budgets()


def _parsed(part: str, text: str) -> tuple[str, Any]:
    """(field, value) of a part of a budget."""
    if part in get_args(Spread):
        return "spread", part
    if seconds := SECONDS.fullmatch(part):
        return "round_seconds", float(seconds[1])
    size = SIZE.fullmatch(part)
    if size is None or size[2] not in UNITS:
        units = ", ".join(unit for unit in UNITS if unit not in ("byte", "bytes", "KB", "bit"))
        unit = "" if size is None else f", and {size[2]!r} is not a unit ({units})"
        raise InputError(f"a budget is written as {EXAMPLE}; got {text!r:.100}{unit}")
    count: Fraction = Fraction(size[1]) * UNITS[size[2]]
    if size[3] == "s":
        return "rate", float(min(count, Fraction(2 * LARGEST)))
    return size[3], math.floor(count)


def _client(key: Any, clients: int | None) -> int:
    number = int(key) if isinstance(key, str) and key.isdecimal() and len(key) < LONG else key
    whole = isinstance(number, int) and not isinstance(number, bool) and number >= 0
    require(whole, f'budgets go by client: a number from 0 on, or "all"; got {key!r:.80}')
    require(clients is None or number < clients, f"a budget for client {number}, but there are {clients}, from 0 on")
    return int(number)


def _smaller(one: Any, other: Any) -> Any:
    given = [number for number in (one, other) if number is not None]
    return min(given) if given else None


def _shown(size: int) -> str:
    """The size in the largest unit that needs no fraction."""
    unit = next(unit for unit in ("GB", "MB", "kB", "B") if size % UNITS[unit] == 0)
    return f"{size // UNITS[unit]} {unit}"


def _plain(number: float) -> str:
    """All digits of the number, without an exponent."""
    return np.format_float_positional(number, trim="-")

"""Every registered method, and at the ends of the ranges on its card: a new one is in the batteries by being here."""

import gammafl as gf
from gammafl.methods.registry import entry_named, method_named, methods_in


def _ends(name: str) -> list[str]:
    """The method with its defaults, and with the first and the last value of each range."""
    ranges = entry_named(name).ranges.items()
    return [name, *(f"{name}:{key}={value}" for key, values in ranges for value in (values[0], values[-1]))]


NAMES = methods_in("all")

REGISTERED: dict[str, gf.Method] = {text: method_named(text) for name in NAMES for text in _ends(name)}
"""Expression → method."""

"""Completions of a word in the shell. Typer uses them after `gammafl --install-completion`."""

from collections.abc import Iterable


def tasks(incomplete: str) -> list[str]:
    from gammafl.tasks.registry import PRESETS

    return _beginning(incomplete, PRESETS)


def methods(incomplete: str) -> list[str]:
    from gammafl.methods.registry import names

    return _beginning(incomplete, names())


def several_methods(incomplete: str) -> list[str]:
    """Completes the last word of a comma-separated list."""
    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in methods(last)]


def studies(incomplete: str) -> list[str]:
    from gammafl.paper.catalogue import STUDIES

    return _beginning(incomplete, ["list", *STUDIES])


def presets(incomplete: str) -> list[str]:
    from gammafl.config.presets import PRESETS

    return _beginning(incomplete, PRESETS)


def data_sets(incomplete: str) -> list[str]:
    from gammafl.tasks.data.catalogue import DATASETS

    return _beginning(incomplete, DATASETS)


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]

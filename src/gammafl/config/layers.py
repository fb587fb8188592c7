"""Makes the configuration of a run from layers: the task's settings, a TOML file, then `--set key=value`.

An unknown key is an error. If a layer changes the `kind` of a table, the table starts from the new kind's defaults.
"""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from gammafl.config.messages import in_one_line
from gammafl.config.schema import ONLY_SPEED, RunConfig
from gammafl.config.settings import Settings
from gammafl.core.errors import InputError

Table = dict[str, Any]


def make_config(*layers: Mapping[str, Any]) -> RunConfig:
    """The configuration from tables of increasing priority, or an `InputError` of one line."""
    merged = {k: f.default.model_dump() for k, f in RunConfig.model_fields.items() if isinstance(f.default, Settings)}
    for layer in layers:
        merged = merge(merged, layer)
    try:
        return RunConfig.model_validate(merged)
    except ValidationError as error:
        raise InputError(in_one_line(error, RunConfig)) from None


def read_toml(path: Path) -> Table:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"can't read the configuration {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None


def to_toml(config: Settings) -> str:
    """The complete configuration as TOML. Unset settings are left out."""
    return tomli_w.dumps(config.model_dump(exclude_none=True))


def described(config: Settings, prefix: str = "") -> list[list[str]]:
    """[key, value, meaning] of every setting, with those inside tables."""
    rows = []
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if isinstance(value, Settings):
            rows += described(value, f"{prefix}{name}.")
        else:
            meaning = field.description or (type(config).__doc__ if name == "kind" else "") or ""
            rows.append([prefix + name, "" if value is None else str(value), meaning])
    return rows + [[prefix + name, str(value), ""] for name, value in (config.model_extra or {}).items()]


def parse_settings(settings: Sequence[str]) -> Table:
    """`["partition.classes=3", "task=x"]` → nested tables. A value is TOML or a plain word."""
    table: Table = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise InputError(f"--set takes key=value, such as --set partition.classes=3; got {setting!r}")
        place = table
        *path, last = key.strip().split(".")
        for part in path:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise InputError(f"--set gives {part} both a value and keys inside it; only one of these is possible")
        place[last] = _value(text.strip())
    return table


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text


def flat(table: Mapping[str, Any], prefix: str = "") -> Table:
    """Nested tables as one flat table, with the keys of --set: {"partition.classes": 3}."""
    made: Table = {}
    for key, value in table.items():
        made |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return made


def result_settings(config: Settings) -> Table:
    """All settings that change the results, as a flat table."""
    return {key: value for key, value in flat(config.model_dump()).items() if key not in ONLY_SPEED}


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> Table:
    """`base` with the changes in `over`. A table with another `kind` replaces the previous table."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, Mapping):
            fresh = "kind" in value and value["kind"] != old.get("kind")
            merged[key] = dict(value) if fresh else merge(old, value)
        else:
            merged[key] = value
    return merged

"""Writes docs/configuration.md from the schema of a run: `python -m tools.configuration_page`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gammafl.config.schema import ONLY_SPEED, RunConfig
from tools.markdown import table

PAGE = Path(__file__).parent.parent / "docs/configuration.md"
HEAD = """# Configuration

<!-- Written by `make reference-pages` from the schema; a test holds them equal. Change config/schema.py. -->

This page lists every setting of a run. A setting can come from five places. A later one wins over an earlier one:

1. the default in the tables below,
2. the task's own settings: `gammafl tasks logistic-fmnist` shows them,
3. `--preset NAME`,
4. a TOML file, `--config settings.toml`,
5. `--set key=value`, which may be repeated. A value is TOML, or a plain word.

```
gammafl run logistic-fmnist --set partition.classes=3 --set averaging.kind=none
```

An unknown key is an error. A table with a `kind` has the settings of that kind. The `config.toml` of a run directory is
complete: `gammafl run --config runs/a/config.toml --out runs/b` repeats the run.
"""
TYPES = {"integer": "whole number", "number": "number", "boolean": "`true` or `false`", "string": "text",
         "array": "list", "object": "table", "null": "unset"}  # fmt: skip
BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<", "minItems": "items ≥"}
COLUMNS = ["key", "default", "values", "meaning"]


def page() -> str:
    """The whole page."""
    schema = RunConfig.model_json_schema()
    known = schema["$defs"]
    rows, tables = [], list[str]()
    for key, field in schema["properties"].items():
        kinds = list(_tables(field, known))
        if kinds:
            tables += [f"## {key}\n", *_of_kinds(key, kinds, known)]
        else:
            rows.append(_row(key, field, key not in schema["required"]))
    speed = ", ".join(f"`{key}`" for key in sorted(ONLY_SPEED))
    note = f"{speed} change only the speed and the memory of a run. A run can continue with other values.\n"
    return "\n".join([HEAD, "## General\n", table(COLUMNS, rows), note, *tables])


def _tables(field: dict[str, Any], known: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The tables of settings that a field can hold."""
    for one in (field, *field.get("oneOf", ())):
        if "$ref" in one:
            yield known[one["$ref"].rpartition("/")[2]]


def _of_kinds(key: str, kinds: list[dict[str, Any]], known: dict[str, Any]) -> Iterator[str]:
    for kind in kinds:
        fields = kind.get("properties", {})
        name = fields.get("kind", {}).get("const")
        said = " ".join(kind.get("description", "").split())
        title = f"`{key}.kind={name}`" if name else ""
        if title or said:
            yield ": ".join(filter(None, [title, said])).rstrip(".") + ".\n"
        rows = [_row(f"{key}.{word}", field, True) for word, field in fields.items() if "const" not in field]
        if rows:
            yield table(COLUMNS, rows)


def _row(key: str, field: dict[str, Any], optional: bool) -> list[str]:
    default = field.get("default")
    shown = "unset" if default is None else f"`{json.dumps(default)}`".replace('"', "")
    return [f"`{key}`", shown if optional else "needed", _values(field), field.get("description", "")]


def _values(field: dict[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(_values(one) for one in field["anyOf"] if one.get("type") != "null")
    if "enum" in field:
        return ", ".join(f"`{word}`" for word in field["enum"])
    limits = [f"{sign} {field[bound]:g}" for bound, sign in BOUNDS.items() if bound in field]
    return ", ".join([TYPES.get(field.get("type", ""), "any"), *limits])


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")

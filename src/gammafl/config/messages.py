"""Errors of a configuration in one line, which names the key and the fix."""

from collections.abc import Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from gammafl.core.names import did_you_mean

Model = type[BaseModel]


def in_one_line(error: ValidationError, model: Model) -> str:
    """The first of pydantic's errors about a `model`, as a message for the command line."""
    first = error.errors(include_url=False)[0]
    place, kind = _place(first["loc"], model)
    key = ".".join(place)
    message = first["msg"].removeprefix("Value error, ")
    match first["type"]:
        case "extra_forbidden":
            known = _known_keys(place[:-1], kind, model)
            where = f"for {place[0]} of kind {kind}" if kind else "here"
            return f"unknown key {key!r}{did_you_mean(place[-1], known)}; known {where}: {', '.join(known)}"
        case "union_tag_invalid" | "union_tag_not_found":
            return f"{key}.kind must be one of {', '.join(_kinds(place[0], model))}, got {first['input'].get('kind')!r}"
        case "model_attributes_type" | "model_type":
            return f"{key} is a table: set one of its keys, such as {key}.{_known_keys(place, kind, model)[0]}"
        case "missing":
            return f"{key} is missing; give it with --set {key}=…"
    if not key or first["type"] == "value_error":  # errors from the schema, which name the key
        return message
    return f"{key}: {message}" + ("" if isinstance(first["input"], dict) else f", got {first['input']!r}")


def _place(location: tuple[int | str, ...], model: Model) -> tuple[list[str], str | None]:
    """The key's path, and the kind of its table. pydantic puts the kind between table and key."""
    parts = [str(part) for part in location]
    if len(parts) > 1 and parts[1] in _kinds(parts[0], model):
        return [parts[0], *parts[2:3]], parts[1]
    return parts[:2] if parts and _tables(parts[0], model) else parts[:1], None


def _tables(key: str, model: Model) -> list[Model]:
    """The tables that a key may hold."""
    field = model.model_fields.get(key)
    options: tuple[Any, ...] = get_args(field.annotation) or (field.annotation,) if field else ()
    return [option for option in options if isinstance(option, type) and issubclass(option, BaseModel)]


def _kinds(key: str, model: Model) -> dict[str, Model]:
    tables = _tables(key, model)
    return {table.model_fields["kind"].default: table for table in tables if "kind" in table.model_fields}


def _known_keys(place: Sequence[str], kind: str | None, model: Model) -> list[str]:
    if not place:
        return list(model.model_fields)
    table = _kinds(place[0], model)[kind] if kind else _tables(place[0], model)[0]
    return list(table.model_fields)

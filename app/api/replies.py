"""Typed answers: what a route says that it returns is what its answer is checked against and what the document says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from types import NoneType
from typing import Any, Generic, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec
from fastapi import APIRouter, Response
from pydantic.alias_generators import to_snake

from app.store.world.objects import rfc3339

JSON = "application/json"
REFERENCES = "#/components/schemas/{name}"
SUFFIX = "Wire"  # of the type of a dictionary; its schema does without
T = TypeVar("T")
W = TypeVar("W", bound=Mapping[str, object])

types: list[type] = []  # that routes take or answer with


class Reply(Response, Generic[T]):
    """An answer whose JSON is a T. Type checkers compare it with what is built; nothing is validated at run time."""


class TypedRouter(APIRouter):
    """Routes whose answers FastAPI documents by the type in `-> Reply[...]`, and does not validate."""

    def add_api_route(self, path: str, endpoint: Callable[..., object], **options: Any) -> None:
        found = get_type_hints(endpoint, include_extras=True).get("return")
        if get_origin(found) is Reply:
            status = options.get("status_code") or 200
            given = options.get("responses") or {}
            content = {**_content(get_args(found)[0]), **given.get(status, {}).get("content", {})}
            described = {"description": "Created" if status == 201 else "Done", "content": content}
            options["responses"] = {**given, status: described}
        super().add_api_route(path, endpoint, **{**options, "response_model": None})


def write_row(kind: type[W], row: object, /, **given: object) -> W:
    """Writes a row by the keys of its type: moments as text, and an empty text as null where the type admits null."""
    return cast(W, {key: given[key] if key in given else _value(row, *of) for key, of in _keys(kind)})


@cache
def _keys(kind: type) -> tuple[tuple[str, tuple[str, bool]], ...]:
    return tuple((key, (to_snake(key), NoneType in get_args(of))) for key, of in get_type_hints(kind).items())


def _value(row: object, name: str, may_be_null: bool) -> object:
    value = row[name] if isinstance(row, Mapping) else getattr(row, name)
    if isinstance(value, datetime):
        return rfc3339(value)
    return None if may_be_null and value == "" else value


def takes(kind: type, *, required: bool = True) -> dict[str, object]:
    """Returns what FastAPI documents of a route that reads a body of this type itself."""
    return {"requestBody": {"required": required, "content": _content(kind)}}


def _content(kind: object) -> dict[str, object]:
    if isinstance(kind, type) and get_origin(kind) is None:
        types.append(kind)
        return {JSON: {"schema": {"$ref": REFERENCES.format(name=kind.__name__.removesuffix(SUFFIX))}}}
    return {JSON: {"schema": msgspec.json.schema(kind)}}


def schemas() -> dict[str, object]:
    """Returns the schemas of all that routes take and answer with."""
    _, found = msgspec.json.schema_components(types, schema_hook=_hook, ref_template=REFERENCES)
    named: dict[str, object] = msgspec.json.decode(msgspec.json.encode(found).replace(f'{SUFFIX}"'.encode(), b'"'))
    return named


def _hook(kind: type) -> dict[str, object]:
    if kind is object:
        return {}  # anything
    raise NotImplementedError(kind)

"""Typed answers: what a route says that it returns is what its answer is checked against and what the document says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from fastapi import APIRouter, Response

JSON = "application/json"
REFERENCES = "#/components/schemas/{name}"
SUFFIX = "Wire"  # of the type of a dictionary; its schema does without
T = TypeVar("T")

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

"""Compares every answer that a test gets with its schema in openapi/openapi.json: no field may be missing there."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs

DOCUMENT = Path(__file__).parents[2] / "openapi" / "openapi.json"
CLOSED_FOR_TESTS = {"additionalProperties": False}
# Their objects have more fields than those that are named.
OPEN = {"Problem"}
MOST_FAULTS = 5


class WrongAnswer(AssertionError):
    """An answer that is not as the API's document says."""


def check_answer(method: str, path: str, status: int, media: str, text: str) -> None:
    """Raises WrongAnswer for an answer whose operation, status or fields the document does not have."""
    if (operation := _operation(method, path.partition("?")[0])) is None or status == 304:
        return
    responses = _paths()[operation][method.lower()]["responses"]
    if str(status) not in responses:
        if status == 405:
            return
        raise WrongAnswer(f"{method} {operation} answered {status}; its document has {', '.join(responses)}")
    media = media.partition(";")[0]
    if not media.endswith("json"):
        return
    found = responses[str(status)]
    if "$ref" in found:
        found = _document()["components"]["responses"][found["$ref"].rpartition("/")[2]]
    schema = found.get("content", {}).get(media, {}).get("schema")
    if schema is None:
        raise WrongAnswer(f"{method} {operation} answered {status} as {media}, which its document does not have")
    errors = list(_validator(json.dumps(schema)).iter_errors(json.loads(text)))
    if errors:
        lines = [f"{'/'.join(map(str, error.instance_path))}: {error.message[:300]}" for error in errors[:MOST_FAULTS]]
        raise WrongAnswer(f"{method} {operation} {status} is not as its document says:\n" + "\n".join(lines))


@cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(DOCUMENT.read_text())
    return document


def _paths() -> dict[str, Any]:
    paths: dict[str, Any] = _document()["paths"]
    return paths


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    """Returns the paths, those without parameters first."""
    order = sorted(_paths(), key=lambda path: path.count("{"))
    last = "/api/v1/explain/instances/{instance}"  # the id of an instance has slashes
    return [(re.compile(re.sub(r"\{[^}]*\}", ".+" if path == last else "[^/]+", path)), path) for path in order]


def _operation(method: str, path: str) -> str | None:
    for pattern, template in _patterns():
        if pattern.fullmatch(path):
            return template if method.lower() in _paths()[template] else None
    return None


@cache
def _validator(schema: str) -> Any:
    return jsonschema_rs.validator_for({**json.loads(schema), "components": _closed_components()})


@cache
def _closed_components() -> dict[str, Any]:
    schemas = _document()["components"]["schemas"]
    return {"schemas": {name: schema if name in OPEN else _closed(schema) for name, schema in schemas.items()}}


def _closed(schema: Any) -> Any:
    """Returns the schema without room for fields that it does not name."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        return CLOSED_FOR_TESTS | closed
    return closed

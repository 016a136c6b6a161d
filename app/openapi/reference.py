"""Prepares the API's document for people: operations by noun, schemas with their fields. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.openapi.schemas import Schema

SCHEMAS = "#/components/schemas/"
LIMITS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<", "maxLength": "length <="}


@dataclass(frozen=True, slots=True)
class TypeWord:
    """A word of a type; `schema` names the schema that it is a link to."""

    text: str
    schema: str = ""


@dataclass(frozen=True, slots=True)
class FieldLine:
    """A parameter or a field of a schema."""

    name: str
    type: tuple[TypeWord, ...]
    required: bool
    about: str
    place: str = ""  # of a parameter: path, query, header


@dataclass(frozen=True, slots=True)
class BodyLine:
    """A body in one media type."""

    media: str
    type: tuple[TypeWord, ...]
    status: str = ""


@dataclass(frozen=True, slots=True)
class OperationEntry:
    """An operation: its request, its answers, and the statuses of its refusals."""

    id: str
    method: str
    path: str
    summary: str
    about: str
    is_open: bool
    parameters: Sequence[FieldLine]
    bodies: Sequence[BodyLine]
    answers: Sequence[BodyLine]
    refusals: Sequence[str]


@dataclass(frozen=True, slots=True)
class SchemaEntry:
    """A schema with its fields; `type` is what it is if it has none."""

    name: str
    about: str
    type: tuple[TypeWord, ...]
    fields: Sequence[FieldLine]


@dataclass(frozen=True, slots=True)
class ApiReference:
    """The whole document, in the order in which a reader meets it."""

    title: str
    about: str
    operations: Mapping[str, Sequence[OperationEntry]]  # by noun
    schemas: Sequence[SchemaEntry]


def read_document(document: Schema) -> ApiReference:
    """Returns the operations and schemas of an OpenAPI document."""
    by_tag: dict[str, list[OperationEntry]] = {}
    for path, operations in sorted(document["paths"].items()):
        for method, operation in operations.items():
            by_tag.setdefault(operation["tags"][0], []).append(_operation(path, method, operation))
    return ApiReference(
        title=document["info"]["title"],
        about=document["info"]["description"],
        operations=dict(sorted(by_tag.items())),
        schemas=[_schema(name, schema) for name, schema in sorted(document["components"]["schemas"].items())],
    )


def _operation(path: str, method: str, operation: Schema) -> OperationEntry:
    responses = operation["responses"]
    return OperationEntry(
        id=operation["operationId"],
        method=method.upper(),
        path=path,
        summary=operation.get("summary", ""),
        about=operation.get("description", ""),
        is_open=operation.get("security") == [],
        parameters=[
            FieldLine(
                parameter["name"],
                spell_type(parameter["schema"]),
                parameter.get("required", False),
                parameter.get("description") or parameter["schema"].get("description", ""),
                parameter["in"],
            )
            for parameter in operation.get("parameters", ())
        ],
        bodies=list(_bodies(operation.get("requestBody", {}))),
        answers=[line for status in sorted(responses) if status < "4" for line in _answers(status, responses[status])],
        refusals=[status for status in sorted(responses) if status >= "4"],
    )


def _bodies(body: Schema, status: str = "") -> Iterator[BodyLine]:
    for media, content in sorted(body.get("content", {}).items()):
        yield BodyLine(media, spell_type(content["schema"]), status)


def _answers(status: str, response: Schema) -> Iterator[BodyLine]:
    if response.get("content"):
        yield from _bodies(response, status)
    else:
        yield BodyLine("", (TypeWord(response["description"]),), status)


def _schema(name: str, schema: Schema) -> SchemaEntry:
    required = schema.get("required", ())
    fields = [
        FieldLine(field, spell_type(inner), field in required, inner.get("description", ""))
        for field, inner in schema.get("properties", {}).items()
    ]
    return SchemaEntry(name, schema.get("description", ""), spell_type({**schema, "description": ""}), fields)


def spell_type(schema: Schema) -> tuple[TypeWord, ...]:
    """Returns a type in words: `array of Event`, `number or null, >= 0`, `one of info, warning`."""
    return (*_spell(schema), *_limits(schema))


def _spell(schema: Schema) -> tuple[TypeWord, ...]:
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(SCHEMAS)
        return (TypeWord(name, name),)
    for union in ("anyOf", "oneOf", "allOf"):
        if union in schema:
            return _join([_spell(inner) for inner in schema[union]])
    if "const" in schema:
        return (TypeWord(f'"{schema["const"]}"'),)
    if "enum" in schema:
        return (TypeWord("one of " + ", ".join(str(value) for value in schema["enum"])),)
    kind = schema.get("type", "any value")
    if isinstance(kind, list):
        return (TypeWord(" or ".join(kind)),)
    if kind == "array":
        return (TypeWord("array of "), *_spell(schema.get("items", {})))
    inner = schema.get("additionalProperties")
    if kind == "object" and isinstance(inner, dict) and "properties" not in schema:
        return (TypeWord("map of "), *_spell(inner))
    form = schema.get("format")
    return (TypeWord(f"{kind} ({form})" if form else str(kind)),)


def _join(parts: Sequence[tuple[TypeWord, ...]]) -> tuple[TypeWord, ...]:
    words: list[TypeWord] = []
    for part in parts:
        words += [TypeWord(" or "), *part] if words else part
    return tuple(words)


def _limits(schema: Mapping[str, object]) -> Iterator[TypeWord]:
    for key, sign in LIMITS.items():
        if key in schema:
            yield TypeWord(f", {sign} {schema[key]:g}")
    if schema.get("default") not in (None, "", []):
        yield TypeWord(f"; default {schema['default']}")

"""Building blocks of the answers' schemas: values with their JSON types, records, lists, references."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

Schema: TypeAlias = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
WHOLE: Schema = {"type": "integer"}
YES_NO: Schema = {"type": "boolean"}
MOMENT: Schema = {"type": "string", "format": "date-time"}
TEXTS: Schema = {"type": "array", "items": TEXT}
WHOLES: Schema = {"type": "array", "items": WHOLE}
NUMBERS: Schema = {"type": "object", "additionalProperties": NUMBER}  # by name
FREE: Schema = {"type": "object", "additionalProperties": True}  # of what users or agents wrote
SEVERITY: Schema = {"enum": ["info", "warning", "alarm"]}


def component(name: str) -> Schema:
    """Returns a reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def array(items: Schema | str) -> Schema:
    """Returns a list of these items, or of the component of this name."""
    return {"type": "array", "items": component(items) if isinstance(items, str) else items}


def nullable(schema: Schema | str) -> Schema:
    """Returns the same or null."""
    if isinstance(schema, str):
        return {"anyOf": [component(schema), {"type": "null"}]}
    return {**schema, "type": [schema["type"], "null"]}


def record(about: str, fields: Mapping[str, Schema], sometimes: Mapping[str, Schema] | None = None) -> Schema:
    """Returns an object with these fields, and some that not every caller gets."""
    return {
        "type": "object",
        "description": about,
        "required": [*fields],
        "properties": {**fields, **(sometimes or {})},
    }


def listing(kind: str, items: str, *, paged: bool = True) -> Schema:
    """Returns a list of components; a paged list names its next page."""
    page = {"metadata": component("PageMetadata")} if paged else {}
    return record(f"A list of {items} objects", {"kind": {"const": kind}, **page, "items": array(items)})


PARTS: Mapping[str, Schema] = {
    "PageMetadata": record("The next page of a list; null on the last page", {"next": nullable(TEXT)}),
}

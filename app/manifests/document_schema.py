"""The JSON Schema of whole manifests, by which an editor completes and marks them as they are written."""

from __future__ import annotations

from collections.abc import Sequence

from app.manifests import kinds
from app.manifests.heading import LABEL_KEY, LABEL_VALUE, MAX_LABELS, NAME, SHOWN_METADATA
from app.manifests.kinds import Schema
from app.manifests.model import API_VERSION, TENANTED, Kind
from app.manifests.validate import EMPTY_SPEC

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def write_schema(wanted: Sequence[Kind]) -> Schema:
    """Returns the schema of a document of one of these kinds."""
    parts: Schema = {}
    cases = []
    for kind in wanted:
        spec = dict(kinds.schema(kind))
        for name, part in spec.pop("$defs", {}).items():
            assert parts.setdefault(name, part) == part, f"{name} is two things"
        parts[f"{kind}Manifest"] = _write_manifest(kind, spec)
        is_it = {"properties": {"kind": {"const": str(kind)}}, "required": ["kind"]}
        cases.append({"if": is_it, "then": {"$ref": f"#/$defs/{kind}Manifest"}})
    known = {"enum": [str(kind) for kind in wanted], "description": "What is declared"}
    return {
        "$schema": DIALECT,
        "title": "A manifest of gpuwright",
        "type": "object",
        "required": ["apiVersion", "kind"],
        "properties": {"apiVersion": {"const": API_VERSION}, "kind": known},
        "allOf": cases,  # by kind, so that a fault is reported for the kind that was meant
        "$defs": parts,
    }


def _write_manifest(kind: Kind, spec: Schema) -> Schema:
    required = [] if kind is Kind.STATE else ["metadata"]
    return {
        "type": "object",
        "required": [*required, *([] if kind in EMPTY_SPEC else ["spec"])],
        "properties": {
            "apiVersion": {"const": API_VERSION},
            "kind": {"const": str(kind)},
            "metadata": _write_metadata(kind),
            "spec": spec,
            "status": {"description": "What `get` adds; `apply` leaves it out"},
        },
        "additionalProperties": False,
    }


def _write_metadata(kind: Kind) -> Schema:
    labels = {
        "type": "object",
        "propertyNames": {"pattern": _whole(LABEL_KEY.pattern)},
        "additionalProperties": {"type": "string", "pattern": _whole(LABEL_VALUE.pattern)},
        "maxProperties": MAX_LABELS,
    }
    name = {"type": "string", "pattern": _whole(NAME.pattern), "description": "Its name, the only one of its kind"}
    tenant = {"type": "string", "pattern": _whole(NAME.pattern), "description": "To whom it belongs"}
    return {
        "type": "object",
        "required": ["name"] if kind is not Kind.STATE else [],
        "properties": {
            "name": name,
            "labels": labels,
            **({"tenant": tenant} if kind in TENANTED else {}),
            **{shown: {"description": "What `get` adds"} for shown in sorted(SHOWN_METADATA)},
        },
        "additionalProperties": False,
    }


def _whole(pattern: str) -> str:
    return f"^(?:{pattern})$"

"""Schemas of what the API takes and gives: manifests, objects, lists, problems."""

from __future__ import annotations

import json
from typing import Any

from app.manifests import kinds
from app.manifests.model import API_VERSION, STORED, Kind

NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", "maxLength": 63}
KEPT: dict[str, Any] = {
    "uid": {"type": "string", "format": "uuid"},
    "generation": {"type": "integer"},
    "resourceVersion": {"type": "integer"},
    "createdAt": {"type": "string", "format": "date-time"},
    "updatedAt": {"type": "string", "format": "date-time"},
}
CONDITION = {
    "type": "object",
    "required": ["type", "status", "reason", "message", "lastTransitionTime", "observedGeneration"],
    "properties": {
        "type": {"type": "string"},
        "status": {"enum": ["True", "False", "Unknown"]},
        "reason": {"type": "string"},
        "message": {"type": "string"},
        "lastTransitionTime": {"type": "string", "format": "date-time"},
        "observedGeneration": {"type": "integer"},
    },
}
PROBLEM = {
    "type": "object",
    "description": "RFC 9457",
    "required": ["type", "title", "status", "detail", "instance", "requestId"],
    "properties": {
        "type": {"type": "string", "pattern": "^urn:gpuwright:problem:"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
        "requestId": {"type": "string"},
        "faults": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["document", "field", "message"],
                "properties": {
                    "document": {"type": "string"},
                    "field": {"type": "string"},
                    "message": {"type": "string"},
                    "allowed": {"type": "string"},
                    "value": {},
                    "suggestion": {"type": "string"},
                },
            },
        },
        "referrers": {"type": "array", "items": {"type": "object"}},
    },
}
APPLIED = {
    "type": "object",
    "required": ["dryRun", "resourceVersion", "changes", "warnings"],
    "properties": {
        "dryRun": {"type": "boolean"},
        "resourceVersion": {"type": "integer"},
        "changes": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["kind", "name", "action", "resourceVersion", "diff"],
                "properties": {
                    "kind": {"enum": [str(kind) for kind in STORED]},
                    "tenant": {"type": "string"},
                    "name": {"type": "string"},
                    "action": {"enum": ["created", "updated", "unchanged", "deleted"]},
                    "resourceVersion": {"type": "integer"},
                    "diff": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["path", "before", "after"],
                            "properties": {"path": {"type": "string"}, "before": {}, "after": {}},
                        },
                    },
                },
            },
        },
        "warnings": {"type": "array", "items": {"type": "string"}},
    },
}
FILES = {
    "type": "object",
    "required": ["files"],
    "additionalProperties": False,
    "properties": {
        "files": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["name", "text"],
                "additionalProperties": False,
                "properties": {"name": {"type": "string"}, "text": {"type": "string"}},
            },
        }
    },
}


def of_kind(kind: Kind) -> dict[str, Any]:
    """Returns the kind's spec with all it is made of, its manifest, its object and its list."""
    spec = json.loads(json.dumps(kinds.schema(kind)).replace("#/$defs/", f"#/components/schemas/{kind}"))
    parts = {f"{kind}{name}": schema for name, schema in spec.pop("$defs", {}).items()}
    for part in (spec, *parts.values()):
        part.pop("title", None)  # generated clients would name two parts of different kinds by it
    named = {"name": NAME, "labels": {"type": "object", "additionalProperties": {"type": "string"}}}
    required = ["name"]
    if kind.tenanted:
        named["tenant"] = NAME
    spec_reference = {"$ref": f"#/components/schemas/{kind}Spec"}
    envelope = {"apiVersion": {"const": API_VERSION}, "kind": {"const": str(kind)}}
    return parts | {
        f"{kind}Spec": spec,
        f"{kind}Manifest": {
            "type": "object",
            "required": ["apiVersion", "kind", "metadata", "spec"],
            "properties": {
                **envelope,
                "metadata": {"type": "object", "required": required, "properties": named},
                "spec": spec_reference,
            },
        },
        str(kind): {
            "type": "object",
            "required": ["apiVersion", "kind", "metadata", "spec", "status"],
            "properties": {
                **envelope,
                "metadata": {
                    "type": "object",
                    "required": [*required, *KEPT],
                    "properties": {**named, **KEPT},
                },
                "spec": spec_reference,
                "status": {
                    "type": "object",
                    "properties": {
                        "conditions": {"type": "array", "items": {"$ref": "#/components/schemas/Condition"}}
                    },
                },
            },
        },
        f"{kind}List": {
            "type": "object",
            "required": ["apiVersion", "kind", "metadata", "items"],
            "properties": {
                "apiVersion": {"const": API_VERSION},
                "kind": {"const": f"{kind}List"},
                "metadata": {
                    "type": "object",
                    "required": ["resourceVersion", "next"],
                    "properties": {
                        "resourceVersion": {"type": "integer"},
                        "next": {"type": ["string", "null"], "description": "Cursor of the next page"},
                    },
                },
                "items": {"type": "array", "items": {"$ref": f"#/components/schemas/{kind}"}},
            },
        },
    }

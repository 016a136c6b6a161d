"""Schemas of what the API takes and gives: manifests, objects, lists, problems."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from app.manifests import kinds
from app.manifests.kinds import Schema as Schema
from app.manifests.model import API_VERSION, Kind

NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", "maxLength": 63}
KEPT: Schema = {
    "uid": {"type": "string", "format": "uuid"},
    "generation": {"type": "integer"},
    "resourceVersion": {"type": "integer"},
    "createdAt": {"type": "string", "format": "date-time"},
    "updatedAt": {"type": "string", "format": "date-time"},
}
CONDITION = {
    "type": "object",
    "description": "A statement about an object: whether it holds, since when, and why",
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
FAULT = {
    "type": "object",
    "description": "What is wrong with a field of a manifest",
    "required": ["document", "field", "message"],
    "properties": {
        "document": {"type": "string"},
        "field": {"type": "string"},
        "message": {"type": "string"},
        "allowed": {"type": "string"},
        "value": {"description": "The value that was sent"},
        "suggestion": {"type": "string"},
    },
}
PROBLEM = {
    "type": "object",
    "description": "RFC 9457",
    "required": ["type", "title", "status", "detail"],  # a head that cannot be read has neither path nor id
    "properties": {
        "type": {"type": "string", "pattern": "^urn:gpuwright:problem:"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
        "requestId": {"type": "string"},
        "faults": {"type": "array", "items": {"$ref": "#/components/schemas/ManifestFault"}},
        "referrers": {"type": "array", "items": {"type": "object", "additionalProperties": True}},
    },
}
FILE = {
    "type": "object",
    "description": "A file of manifests",
    "required": ["name", "text"],
    "additionalProperties": False,
    "properties": {"name": {"type": "string"}, "text": {"type": "string"}},
}
FILES = {
    "type": "object",
    "description": "Files of manifests, whose names faults then give",
    "required": ["files"],
    "additionalProperties": False,
    "properties": {"files": {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/ManifestFile"}}},
}
MERGE_PATCH = {
    "type": "object",
    "description": "The fields to change, null for those to remove (RFC 7396)",
    "additionalProperties": True,
}
LABELS = {
    "type": "object",
    "description": "Words about an object, by which lists are narrowed",
    "additionalProperties": {"type": "string"},
}
CHOSEN = {"name": NAME, "labels": {"$ref": "#/components/schemas/Labels"}}
CHOSEN_BY_TENANTS = {**CHOSEN, "tenant": NAME}


def _metadata(about: str, required: Iterable[str], properties: Mapping[str, object]) -> dict[str, object]:
    return {"type": "object", "description": about, "required": [*required], "properties": {**properties}}


SHARED: Schema = {
    "Problem": PROBLEM,
    "ManifestFault": FAULT,
    "Condition": CONDITION,
    "Files": FILES,
    "ManifestFile": FILE,
    "MergePatch": MERGE_PATCH,
    "Labels": LABELS,
    "ManifestMetadata": _metadata("The name of an object to declare", ["name"], CHOSEN),
    "TenantedManifestMetadata": _metadata("The name of a tenant's object to declare", ["name"], CHOSEN_BY_TENANTS),
    "ObjectMetadata": _metadata("The name and versions of an object", ["name", *KEPT], {**CHOSEN, **KEPT}),
    "TenantedObjectMetadata": _metadata(
        "The name and versions of a tenant's object", ["name", "tenant", *KEPT], {**CHOSEN_BY_TENANTS, **KEPT}
    ),
    "ObjectListMetadata": _metadata(
        "The version of a list, and the cursor of its next page; null on the last",
        ["resourceVersion", "next"],
        {"resourceVersion": {"type": "integer"}, "next": {"type": ["string", "null"]}},
    ),
    "ObjectStatus": {
        "type": "object",
        "description": "What the server knows of an object",
        "additionalProperties": True,
        "properties": {"conditions": {"type": "array", "items": {"$ref": "#/components/schemas/Condition"}}},
    },
}


def make_kind_schemas(kind: Kind) -> dict[str, object]:
    """Returns the kind's spec with all it is made of, its manifest, its object and its list."""
    spec = json.loads(json.dumps(kinds.schema(kind)).replace("#/$defs/", f"#/components/schemas/{kind}"))
    parts = {f"{kind}{name}": schema for name, schema in spec.pop("$defs", {}).items()}
    for part in (spec, *parts.values()):
        part.pop("title", None)  # generated clients would name two parts of different kinds by it
    spec_reference = {"$ref": f"#/components/schemas/{kind}Spec"}
    prefix = "#/components/schemas/" + ("Tenanted" if kind.tenanted else "")
    envelope = {"apiVersion": {"const": API_VERSION}, "kind": {"const": str(kind)}}
    return parts | {
        f"{kind}Spec": spec,
        f"{kind}Manifest": {
            "type": "object",
            "description": f"A {kind} to declare",
            "required": ["apiVersion", "kind", "metadata", "spec"],
            "properties": {**envelope, "metadata": {"$ref": f"{prefix}ManifestMetadata"}, "spec": spec_reference},
        },
        str(kind): {
            "type": "object",
            "description": f"A {kind} as it is declared, and what is known of it",
            "required": ["apiVersion", "kind", "metadata", "spec", "status"],
            "properties": {
                **envelope,
                "metadata": {"$ref": f"{prefix}ObjectMetadata"},
                "spec": spec_reference,
                "status": {"$ref": "#/components/schemas/ObjectStatus"},
            },
        },
        f"{kind}List": {
            "type": "object",
            "description": f"A page of objects of the kind {kind}",
            "required": ["apiVersion", "kind", "metadata", "items"],
            "properties": {
                "apiVersion": {"const": API_VERSION},
                "kind": {"const": f"{kind}List"},
                "metadata": {"$ref": "#/components/schemas/ObjectListMetadata"},
                "items": {"type": "array", "items": {"$ref": f"#/components/schemas/{kind}"}},
            },
        },
    }

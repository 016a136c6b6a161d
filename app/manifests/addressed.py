"""A manifest put at a URL: it may leave out what the path names, and must agree with the path."""

from __future__ import annotations

from collections.abc import Sequence

from app.manifests.faults import ManifestFault, quoted, shown
from app.manifests.model import API_VERSION, JSON, Key
from app.manifests.reader import Document


def complete_from_path(documents: Sequence[Document], key: Key) -> tuple[Sequence[Document], list[ManifestFault]]:
    """Returns the single document of a request, completed by the path of its object, and where they disagree."""
    if len(documents) != 1:
        return [], [ManifestFault("body", "", f"there are {len(documents)} documents", "one document")]
    body = documents[0].value
    metadata = body.get("metadata", {}) if isinstance(body, dict) else None
    if not isinstance(body, dict) or not isinstance(metadata, dict):
        return documents, []  # validation reports its type
    known: dict[str, JSON] = {"name": key.name}
    if key.tenant:
        known["tenant"] = key.tenant
    faults = [
        _disagrees(f"metadata.{field}", metadata[field], value)
        for field, value in known.items()
        if field in metadata and metadata[field] != value
    ]
    if "kind" in body and body["kind"] != str(key.kind):
        faults.append(_disagrees("kind", body["kind"], str(key.kind)))
    completed: dict[str, JSON] = {"apiVersion": API_VERSION, "kind": str(key.kind), **body}
    completed["metadata"] = {**metadata, **known}
    return [Document("body", completed)], faults


def _disagrees(field: str, value: JSON, expected: JSON) -> ManifestFault:
    return ManifestFault("body", field, f"{quoted(value)} differs from the path", str(expected), shown(value))

"""One manifest put at an address: what the path says may be left out of it, and must agree with it."""

from __future__ import annotations

from collections.abc import Sequence

from app.manifests.faults import ManifestFault, quoted, shown
from app.manifests.model import API_VERSION, JSON, Key
from app.manifests.reader import Document


def named(documents: Sequence[Document], key: Key) -> tuple[Sequence[Document], list[ManifestFault]]:
    """The one document of a request whose path names the object, completed by the path; and where they disagree."""
    if len(documents) != 1:
        return [], [ManifestFault("body", "", f"there are {len(documents)} documents", "one document")]
    body = documents[0].value
    metadata = body.get("metadata", {}) if isinstance(body, dict) else None
    if not isinstance(body, dict) or not isinstance(metadata, dict):
        return documents, []  # validation says what it is instead
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
    whole: dict[str, JSON] = {"apiVersion": API_VERSION, "kind": str(key.kind), **body}
    whole["metadata"] = {**metadata, **known}
    return [Document("body", whole)], faults


def _disagrees(field: str, value: JSON, path_says: JSON) -> ManifestFault:
    return ManifestFault("body", field, f"{quoted(value)} differs from the path", str(path_says), shown(value))

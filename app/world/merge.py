"""JSON Merge Patch (RFC 7396) on a declared object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.manifests.faults import ManifestFault
from app.manifests.model import JSON, Key, Manifest
from app.manifests.reader import Document
from app.manifests.validate import validate
from app.world.consistent import invalid


def merged(wire: Mapping[str, Any], change: Mapping[str, JSON], key: Key) -> Manifest:
    """Returns the manifest that a patch makes of an object; its name and tenant stay."""
    known = {name: wire[name] for name in ("apiVersion", "kind", "spec")}
    known["metadata"] = {name: wire["metadata"][name] for name in ("name", "labels")}
    if key.tenant:
        known["metadata"]["tenant"] = key.tenant
    document = Document("patch", merge(known, change))
    manifests, faults = validate([document], default_tenant=key.tenant or "default", offline=False)
    if not faults and manifests[0].key != key:
        faults = [ManifestFault("patch", "metadata", f"a patch cannot change {key} into {manifests[0].key}")]
    if faults:
        raise invalid(faults)
    return manifests[0]


def merge(target: JSON, change: JSON | Mapping[str, JSON]) -> JSON:
    """Merges by RFC 7396: null removes, an object merges, anything else replaces."""
    if not isinstance(change, Mapping):
        return change
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in change.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge(result.get(name), value)
    return result

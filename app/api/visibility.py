"""Shows objects to tenants without the names of other tenants."""

from __future__ import annotations

from app.manifests.model import Free, Kind


def show_object(wire: Free, tenant: str) -> Free:
    """Returns the object as `tenant` may see it (empty: everything). A Model names only the tenant that asks."""
    if not tenant or wire["kind"] != Kind.MODEL or "tenants" not in wire["spec"]:
        return wire
    return {**wire, "spec": {**wire["spec"], "tenants": [tenant]}}


def show_removal(wire: Free) -> Free:
    """Returns what a watcher may know of an object that it can no longer see: its name."""
    named = {key: wire["metadata"][key] for key in ("name", "uid", "resourceVersion")}
    return {**wire, "metadata": named, "spec": {}, "status": {}}

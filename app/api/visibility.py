"""What of an object a tenant's token is shown: never the name of another tenant."""

from __future__ import annotations

from typing import Any

from app.manifests.model import Kind


def show_object(wire: dict[str, Any], tenant: str) -> dict[str, Any]:
    """The object as `tenant` may see it (empty: everything). A Model names only the tenant that asks."""
    if not tenant or wire["kind"] != Kind.MODEL or "tenants" not in wire["spec"]:
        return wire
    return {**wire, "spec": {**wire["spec"], "tenants": [tenant]}}


def show_removal(wire: dict[str, Any]) -> dict[str, Any]:
    """What a watcher is told of an object that it may no longer see: its name."""
    named = {key: wire["metadata"][key] for key in ("name", "uid", "resourceVersion")}
    return {**wire, "metadata": named, "spec": {}, "status": {}}

"""The objects that a command means: kind, tenant and name of the words typed."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

from app.manifests.model import Kind
from cli import exits
from cli.exits import Failed
from cli.kinds import WORDS, kind_of, label, object_path
from cli.talk.client import ApiClient
from cli.talk.refusals import ServerRefusal

MOST_COMPARED = 500  # of a kind: one page


def read_names(first: str, others: Sequence[str]) -> list[tuple[Kind, str]]:
    """Kind and name of each object meant by `service a b`, or by `service/a node/b` as `-o name` prints them."""
    if "/" not in first:
        return [(kind_of(first), name) for name in others]
    parts = [word.partition("/") for word in (first, *others)]
    if parts[0][0].lower() not in WORDS and not others:
        raise Failed(f"{first!r} names no kind; name it first, like: service {first}, or job {first}")
    for kind, _, name in parts:
        if not name:
            raise Failed(f"{kind!r} is not a name: after {first} every word must be KIND/NAME")
    return [(kind_of(kind), name) for kind, _, name in parts]


def split_name(kind: Kind, text: str, tenant: str) -> tuple[str, str]:
    """Tenant and name of `shop/search` or `search`; the tenant may stay unknown (empty)."""
    if "," in text:
        raise Failed(f"{text!r} is not a name; several names have spaces between them: {text.replace(',', ' ')}")
    if not kind.tenanted:
        if "/" in text:
            raise Failed(f"{kind} {text!r}: objects of this kind have no tenant; use the name alone")
        return "", text
    first, slash, second = text.partition("/")
    if not slash:
        return tenant, text
    if not first or not second or "/" in second:
        raise Failed(f"{kind} {text!r} is not a name: use TENANT/NAME")
    return first, second


def find(client: ApiClient, kind: Kind, text: str) -> dict[str, Any]:
    """Returns the object that is meant; without a tenant, the only one of that name the token can see."""
    tenant, name = split_name(kind, text, client.connection.tenant)
    if kind.tenanted and not tenant:
        found = find_by_name(client, kind, name)
        if len(found) > 1:
            owners = ", ".join(f"{item['metadata']['tenant']}/{name}" for item in found)
            raise Failed(f"{kind} {name} is ambiguous: {owners}; use TENANT/NAME")
        if not found:
            raise absent(client, kind, text)
        return found[0]
    try:
        found_one: dict[str, Any] = client.get(object_path(kind.plural, tenant, name))
    except ServerRefusal as refusal:
        if refusal.status == 404:
            raise absent(client, kind, f"{tenant}/{name}" if tenant else name) from None
        raise
    return found_one


def find_all(client: ApiClient, kind: Kind, names: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the objects of these names, so that all are known before the first of them is changed."""
    return [find(client, kind, name) for name in names]


def find_by_name(client: ApiClient, kind: Kind, name: str) -> list[dict[str, Any]]:
    """Returns the objects of this name in all tenants."""
    query = {"fieldSelector": f"metadata.name={name}", "limit": 100}
    page: dict[str, Any] = client.get(f"/api/v1/{kind.plural}", query)
    return list(page["items"])


def absent(client: ApiClient, kind: Kind, text: str) -> Failed:
    """Returns the failure for an object that does not exist, or that the token may not see."""
    near = find_near(client, (kind,), text)
    meant = f"did you mean {near}?" if near else f"see: gpuwright get {kind.plural}"
    return Failed(f"there is no {kind} {text}; {meant}", exits.NO)


def find_near(client: ApiClient, kinds: Sequence[Kind], text: str) -> str:
    """Returns a name like this one, of the first page of its tenant's; empty where there is none."""
    known: dict[str, str] = {}
    owner = text.partition("/")[0] if "/" in text else client.connection.tenant
    for kind in kinds:
        selector = f"metadata.tenant={owner}" if kind.tenanted and owner else ""
        with suppress(Failed):  # this only adds to an answer
            page = client.get(f"/api/v1/{kind.plural}", {"fieldSelector": selector, "limit": MOST_COMPARED})
            for item in page["items"]:
                name, tenant = item["metadata"]["name"], item["metadata"].get("tenant", "")
                known[f"{tenant}/{name}" if "/" in text else name] = f"{tenant}/{name}".lstrip("/")
    near = get_close_matches(text, known, n=1, cutoff=0.75) or sorted(name for name in known if name.startswith(text))
    return known[near[0]] if near else ""


def tenant_of(args: argparse.Namespace, client: ApiClient) -> str:
    """Returns the tenant a list is narrowed to."""
    return "" if args.all_tenants else client.connection.tenant


def list_objects(
    client: ApiClient, args: argparse.Namespace, kind: Kind, *, many: bool
) -> Iterator[list[dict[str, Any]]]:
    """Yields the pages of one kind. Of several kinds, those that the token may not read are left out."""
    query = {
        "labelSelector": args.selector,
        "fieldSelector": args.field_selector,
        "tenant": tenant_of(args, client) if kind.tenanted else "",
    }
    try:
        for page in client.pages(f"/api/v1/{kind.plural}", query):
            yield page["items"]
    except ServerRefusal as refusal:
        if not (many and refusal.status in (403, 404)):
            raise


def name_of(item: dict[str, Any]) -> str:
    """`service/shop/search`."""
    return label(item["kind"], item["metadata"].get("tenant"), item["metadata"]["name"])

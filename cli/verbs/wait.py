"""`gpuwright wait`: waits until a condition holds."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from app.manifests.model import Kind
from cli import exits
from cli.arguments import add_connection_arguments, add_kind_argument, completes, duration
from cli.exits import Failed
from cli.kinds import label
from cli.output import plain
from cli.patience import waiting
from cli.talk.client import ApiClient
from cli.talk.contexts import resolve
from cli.talk.following import follow
from cli.talk.refusals import ServerRefusal
from cli.talk.selection import absent, find_by_name, read_names, split_name

EPILOG = """\
What to wait for:
  condition=TYPE           the condition is True, for the present generation
  condition=TYPE=STATUS    the condition is True, False or Unknown
  PATH=VALUE               a field has this value: spec.gpus=4, status.gpus[0].healthy=true
  create, delete           the object is there; is gone

Exit code 1 when the time is over.

Examples:
  gpuwright wait service shop/search --for condition=SloAttainable --timeout 2m
  gpuwright wait node node-1 --for delete
"""
CONDITIONS = {
    Kind.SERVICE: ("SloAttainable", "Planned", "Running", "SloAttained", "Degraded", "WithinBudget"),
    Kind.JOB: ("Placed", "Finished", "OnTime"),
    Kind.NODE: ("Reporting", "GpusHealthy", "CapsSettable", "MetadataBlocked", "InventoryMismatch", "Reclaim"),
    Kind.POOL: ("Renting",),
    Kind.TENANT: ("Entitled", "WithinBudget"),
}
Test = Callable[[Mapping[str, Any] | None], bool]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add_kind_argument(parser, "kind, or KIND/NAME")
    completes(parser.add_argument("name", nargs="*", metavar="NAME", help="NAME or TENANT/NAME"), "names")
    parser.add_argument("--for", dest="wanted", metavar="WHAT", required=True, help="see below")
    parser.add_argument("--timeout", type=duration, default=30, metavar="TIME", help="like 30s (default), 5m, 2h")
    add_connection_arguments(parser, tenant=True)


def run(args: argparse.Namespace) -> int:
    holds = test_of(args.wanted)
    targets = read_names(args.kind, args.name)
    if len(targets) != 1:
        raise Failed(f"wait takes one object, KIND NAME or KIND/NAME, not {len(targets)}")
    kind, args.name = targets[0]
    with ApiClient(resolve(args)) as client:
        tenant, name = split_name(kind, args.name, client.connection.tenant)
        _refuse_unknown_condition(args.wanted, kind)
        with waiting(f"{kind} {args.name}: waiting for {args.wanted}"):
            tenant, item = _await(client, args, kind, (tenant, name), holds)
    return _done(args, kind, item, tenant, name)


def _await(
    client: ApiClient, args: argparse.Namespace, kind: Kind, owned: tuple[str, str], holds: Test
) -> tuple[str, Mapping[str, Any] | None]:  # fmt: skip
    """Returns the tenant and the object once it is as wanted."""
    deadline = time.monotonic() + args.timeout
    absence_ends = args.wanted not in ("create", "delete")
    tenant, name = owned
    while True:
        item, version = _now(client, kind, tenant, name)
        if item is None and absence_ends:
            raise absent(client, kind, args.name)
        if holds(item):
            return tenant, item
        tenant = item["metadata"].get("tenant", "") if item else tenant
        for item in _versions(client, kind, tenant, name, version, deadline):
            if holds(item):
                return tenant, item
            if item is None and absence_ends:
                raise Failed(f"{kind} {args.name} was deleted while waiting for {args.wanted}", exits.NO)
        if time.monotonic() >= deadline:
            what = f"{kind} {args.name}: {args.wanted} did not hold within {args.timeout} s"
            raise Failed(f"{what}; it is {state(args.wanted, item)}", exits.NO)


def _refuse_unknown_condition(wanted: str, kind: Kind) -> None:
    """Fails at once where no object of the kind can have the condition."""
    path, _, value = wanted.partition("=")
    name, known = value.partition("=")[0], CONDITIONS.get(kind, ())
    if path == "condition" and name not in known:
        listed = f"it has {', '.join(known)}" if known else "objects of this kind have none"
        near = get_close_matches(name, known, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise Failed(f"{kind} has no condition {name!r}; {listed}{meant}")


def _versions(
    client: ApiClient, kind: Kind, tenant: str, name: str, version: int, deadline: float
) -> Iterator[dict[str, Any] | None]:
    """Yields the object as it changes, None once it is deleted; ends where the list has to be read again."""
    try:
        for change in follow(client, {"kinds": kind.plural, "tenant": tenant}, version, deadline=deadline):
            if change.type != "heartbeat" and _same(change.object, tenant, name, kind):
                yield None if change.type == "deleted" else change.object
    except ServerRefusal as refusal:
        if refusal.status != 410:
            raise


def _now(client: ApiClient, kind: Kind, tenant: str, name: str) -> tuple[dict[str, Any] | None, int]:
    """Returns the object, if it is there, and a version from which a watch misses nothing that happens to it."""
    page = client.get(
        f"/api/v1/{kind.plural}",
        {"fieldSelector": f"metadata.name={name}", "tenant": tenant if kind.tenanted else "", "limit": 2},
    )
    items = page["items"]
    if len(items) > 1:
        owners = ", ".join(f"{entry['metadata']['tenant']}/{name}" for entry in find_by_name(client, kind, name))
        raise Failed(f"{kind} {name} is ambiguous: {owners}; use TENANT/NAME")
    return (items[0] if items else None), int(page["metadata"]["resourceVersion"])


def _same(item: Mapping[str, Any], tenant: str, name: str, kind: Kind) -> bool:
    metadata = item["metadata"]
    return metadata["name"] == name and (not kind.tenanted or not tenant or metadata.get("tenant") == tenant)


def _done(args: argparse.Namespace, kind: Kind, item: Mapping[str, Any] | None, tenant: str, name: str) -> int:
    owner = item["metadata"].get("tenant", "") if item else tenant
    print(plain(label(kind, owner, name)), "deleted" if args.wanted == "delete" else "condition met")
    return exits.OK


def test_of(wanted: str) -> Test:
    """Returns the test that `--for` names."""
    if wanted == "delete":
        return lambda item: item is None
    if wanted == "create":
        return lambda item: item is not None
    path, equals, value = wanted.partition("=")
    if not equals or not path or not value:
        near = get_close_matches(path, {name for names in CONDITIONS.values() for name in names}, n=1)
        meant = f"; did you mean condition={near[0]}?" if near else ""
        allowed = "condition=TYPE[=STATUS], PATH=VALUE, create or delete"
        raise Failed(f"--for {wanted!r} is not understood: {allowed}{meant}")
    if path == "condition":
        kind, _, status = value.partition("=")
        return lambda item: find_condition(item, kind)["status"] == (status or "True").capitalize()
    return lambda item: equal(read_value(item, path), value)


def find_condition(item: Mapping[str, Any] | None, kind: str) -> Mapping[str, Any]:
    """Returns a condition; one that is Unknown where it is absent or speaks of an older generation."""
    generation = (item or {}).get("metadata", {}).get("generation", 0)
    for entry in (item or {}).get("status", {}).get("conditions", []):
        if entry.get("type") == kind and entry.get("observedGeneration", generation) >= generation:
            return dict(entry)
    return {"status": "Unknown"}


def read_value(item: Any, path: str) -> Any:
    """Returns the value at `status.gpus[0].healthy`; None where there is none."""
    value = item
    for part in path.strip("{}").lstrip(".").replace("[", ".").replace("]", "").split("."):
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


def equal(found: Any, wanted: str) -> bool:
    """Compares a field with the value typed: 4 equals 4.0, true equals true."""
    if isinstance(found, str):
        return found == wanted
    try:
        decoded = json.loads(wanted)
    except ValueError:
        return False
    return isinstance(decoded, bool) == isinstance(found, bool) and bool(decoded == found)


def state(wanted: str, item: Mapping[str, Any] | None) -> str:
    """Describes the present state in place of the state that was waited for."""
    if item is None:
        return "not there"
    path, _, value = wanted.partition("=")
    if path == "condition":
        found = find_condition(item, value.partition("=")[0])
        return ": ".join(plain(part) for part in (found["status"], found.get("message")) if part)
    return "still there" if wanted == "delete" else json.dumps(read_value(item, path))

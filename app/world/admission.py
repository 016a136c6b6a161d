"""Finds the users' own runtimes that no node admits, when they are declared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from sqlalchemy import Connection

from agents.contract.admitted import AdmittedEntry, find_not_admitted
from agents.contract.runtimes import OwnRuntime, own_runtime
from app.manifests.model import JSON, Kind
from app.store.fleet import admitted
from app.store.fleet.admitted import ReportedAllowList
from app.store.world.objects import StoredObject

GRPC = "protocol grpc: gateways speak HTTP/1.1 to copies, so gRPC is not routed yet"
MOST_NAMED = 3  # nodes whose reason is named


def find_not_startable(connection: Connection, found: StoredObject) -> list[str]:
    """Returns why nodes would refuse the runtimes of a Model or Job, and what they admit; reads nothing for others."""
    own = list(_own(found))
    if not own:
        return []
    lists = admitted.list_reported_allow_lists(connection)
    reasons = [(place, _refusal(runtime, lists, bool(found.key.tenant))) for place, runtime in own]
    reasons += [(place, GRPC) for place, runtime in own if runtime.protocol == "grpc"]
    return [f"{place}{reason}" for place, reason in reasons if reason]


def _own(found: StoredObject) -> Iterator[tuple[str, OwnRuntime]]:
    holders: list[tuple[str, JSON]] = []
    if found.key.kind is Kind.MODEL:
        holders = [(f"variant {variant['name']}: ", variant.get("runtime")) for variant in found.spec["variants"]]
    elif found.key.kind is Kind.JOB:
        holders = [("", found.spec.get("runtime"))]
    for place, runtime in holders:
        own = own_runtime(runtime)
        if own is not None:
            yield place, own


def _refusal(runtime: OwnRuntime, lists: Sequence[ReportedAllowList], for_tenant: bool) -> str:
    """Returns the sentence that no node admits it; empty if a node does. Tenants do not see nodes by name."""
    if not lists:
        return "no node has reported yet what it admits, and a node starts only what its own allow-list admits"
    reasons = []
    for reported in lists:
        entries = msgspec.convert(reported.admitted, list[AdmittedEntry])
        refused = find_not_admitted(entries, runtime)
        if not refused:
            return ""
        others = f" and {reported.nodes - 1} more" if reported.nodes > 1 else ""
        reasons.append(f"{'a node' if for_tenant else reported.node}{others}: {refused[0].field}: {refused[0].message}")
    more = f"; and {len(reasons) - MOST_NAMED} other allow-lists" if len(reasons) > MOST_NAMED else ""
    return f"no node admits its runtime; {'; '.join(reasons[:MOST_NAMED])}{more}"

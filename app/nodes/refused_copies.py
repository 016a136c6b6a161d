"""Finds copies that gateways must not send requests to, and records which node reports them."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from agents.contract.addresses import BadAddress, IpNetwork, find_objection, is_port, parse_address
from agents.contract.reports import COPY, Dropped, Report
from app.http.buckets import Buckets
from app.nodes import metrics
from app.nodes.node_lane import NodeLane
from app.store.database.database import Unavailable
from app.store.world import events
from app.store.world.events import NewEvent

REASON = "copy_not_routed"  # of events
BAD_ADDRESS = "bad_address"
MOST_NAMED = 3  # copies in one event
MOST_EXAMINED = 64  # addresses of one report: a node has one host, and the event loop examines them
_RECORDED = Buckets(1 / 60, 3.0)  # by node or gateway

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RefusedCopy:
    """A copy that gateways must not send requests to, and why."""

    id: str
    why: str


@lru_cache(maxsize=65_536)  # each report repeats the addresses
def find_address_fault(address: str, networks: tuple[IpNetwork, ...]) -> str:
    """Returns why the address of a copy is refused; empty if it is not."""
    try:
        return find_objection(parse_address(address), networks)
    except BadAddress as error:
        return str(error)


def drop_bad_addresses(report: Report, networks: Sequence[IpNetwork]) -> tuple[Report, tuple[Dropped, ...]]:
    """Returns the report without addresses that gateways must not get, and what was dropped; the rest counts."""
    faults = _find_faults(report, tuple(networks))
    if not faults:
        return report, ()
    copies = tuple(msgspec.structs.replace(copy, address="") if copy.id in faults else copy for copy in report.copies)
    dropped = tuple(Dropped(f"{COPY}{copy}", BAD_ADDRESS, fault) for copy, fault in faults.items())
    return msgspec.structs.replace(report, copies=copies), dropped


def _find_faults(report: Report, networks: tuple[IpNetwork, ...]) -> dict[str, str]:
    """Returns why addresses are refused, by copy. Only the first address of a host that may be used is examined."""
    faults: dict[str, str] = {}
    usable: set[str] = set()
    examined = 0
    for copy in report.copies:
        host, _, port = copy.address.rpartition(":")
        if not copy.address or (host in usable and is_port(port)):
            continue
        examined += 1
        if examined > MOST_EXAMINED:
            faults[copy.id] = f"the report has more than {MOST_EXAMINED} addresses that must be examined"
            continue
        fault = find_address_fault(copy.address, networks)
        if fault:
            faults[copy.id] = fault
        else:
            usable.add(host)
    return faults


async def record_refused(lane: NodeLane, refused: Mapping[str, Collection[RefusedCopy]], kind: str = "Node") -> None:
    """Counts refused copies, and records an event for each node (or gateway) that reports any, now and then."""
    found = []
    for name, copies in refused.items():
        if kind == "Node":
            metrics.COPIES_REFUSED.inc(len(copies))
        if copies and not _RECORDED.take(f"{kind} {name}", time.monotonic()):
            named = "; ".join(f"{copy.id}: {copy.why}" for copy in list(copies)[:MOST_NAMED])
            message = f"{len(copies)} copies get no requests from gateways; {named}"
            found.append(NewEvent(REASON, "alarm", message, kind, name=name))
    if not found:
        return
    try:
        await lane.write(lambda connection: events.record(connection, found))
    except Unavailable as error:
        log.warning("refused_copies_not_recorded", extra={"error": str(error)})

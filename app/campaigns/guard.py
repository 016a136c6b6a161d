"""Finds services that suffer while a campaign measures beside them, so that it stops."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

import msgspec
from sqlalchemy import Connection

from agents.contract.assignments import AssignedInstance, Assignment
from app.control.tell.slo import WindowCounts
from app.store.database import clock
from app.store.fleet import assignments, loads
from app.store.fleet.campaigns import Campaign
from app.store.world.slos import ServiceSlo, find_never_ran, list_unserved, slos

WINDOW = timedelta(minutes=2)
FEWEST_REQUESTS = 20.0  # among fewer, a single late one would stop a campaign
UNSERVED_FOR = timedelta(seconds=60)  # what the fast lane leaves for a moment, the next full plan serves
MOST_NAMED = 5
LONGEST_WAIT = timedelta(minutes=30)  # for a GPU to become empty


def services_on(connection: Connection, node: str) -> set[str]:
    """Returns the services that are assigned to a node."""
    return {line.owner for line in _read_assigned(connection, node) if line.service}


def occupants(connection: Connection, node: str, gpu: int) -> list[str]:
    """Returns the services and jobs that are assigned to a GPU."""
    return sorted({line.owner for line in _read_assigned(connection, node) if line.gpu == gpu})


def _read_assigned(connection: Connection, node: str) -> tuple[AssignedInstance, ...]:
    stored = assignments.read_assignment(connection, node)
    return () if stored is None else msgspec.json.decode(stored[1], type=Assignment).instances


def attainments(connection: Connection, services: Collection[str], within: timedelta = WINDOW) -> dict[str, float]:
    """Returns the share of requests that each service answered in time lately, if it had enough of them."""
    found = {}
    for row in loads.answers_within(connection, within):
        counts = WindowCounts(row.answers, row.errors, row.slow)
        attained = counts.attainment
        if row.service in services and counts.requests >= FEWEST_REQUESTS and attained is not None:
            found[row.service] = attained
    return found


def find_missed(connection: Connection, attained: Mapping[str, float]) -> str:
    """Returns the first of these services that misses its SLO, in words; empty if none does.

    A service that never ran misses it without a campaign, too.
    """
    never_ran = find_never_ran(connection, [name for name, share in attained.items() if share == 0])
    for name, promise in slos(connection):
        share = attained.get(name)
        if share is not None and share < promise["percentile"] / 100 and name not in never_ran:
            slo = f"{promise['percentile']:g} % in {_spell_promise(promise)}"
            return f"{name} answered {100 * share:.4g} % of its requests in time in the last minutes; its SLO is {slo}"
    return ""


def _spell_promise(promise: ServiceSlo) -> str:
    if "latencyMs" in promise:
        return f"{promise['latencyMs']:g} ms"
    return f"{promise['ttftMs']:g} ms to the first token and {promise['tpotMs']:g} ms for each further one"


def find_harm(connection: Connection, campaign: Campaign) -> str:
    """Returns why a campaign must stop: a service on its node, or one that ran on its GPU, suffers. Empty: none does.

    Requests from before its beginning do not count.
    """
    now = clock.now(connection)
    lacking = set(list_unserved(connection, UNSERVED_FOR)) - set(campaign.request.unserved)
    lacking -= find_never_ran(connection, lacking).keys()
    if lacking:
        return f"{min(lacking)} is not fully served any more"
    since = campaign.began_at or campaign.asked_at
    services = services_on(connection, campaign.node) | set(campaign.request.watched)
    return find_missed(connection, attainments(connection, services, min(WINDOW, now - since)))


def describe_passed_over(connection: Connection, campaign: Campaign) -> str:
    """Returns the services that never ran, which stop no campaign, each with the reason; empty if there are none."""
    attained = attainments(connection, services_on(connection, campaign.node) | set(campaign.request.watched))
    suspects = {*list_unserved(connection), *(name for name, share in attained.items() if share == 0)}
    found = [f"{name}: {why}" for name, why in find_never_ran(connection, suspects).items()]
    if not found:
        return ""
    more = f"; and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return f"passed over, as they never ran: {'; '.join(found[:MOST_NAMED])}{more}"


def find_lateness(campaign: Campaign, now: datetime) -> str:
    """Returns why a campaign gives up waiting for its GPU; empty while it may wait."""
    if campaign.began_at is not None or now - campaign.asked_at < LONGEST_WAIT:
        return ""
    minutes = LONGEST_WAIT // timedelta(minutes=1)
    return f"GPU {campaign.gpu} of node {campaign.node} was not free within {minutes} minutes; {campaign.message}"

"""Prices the GPUs that the services of each tenant really held in a time, from the usage that nodes have reported."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial

from sqlalchemy import Connection

from app.ledger.accounting import read_usage
from app.ledger.allocation import TooMuchUsage, allocate
from app.ledger.facts import NodeUsage
from app.manifests.prices import pays_whole_node
from app.store.database.database import Database
from app.store.money import usage

MICROSECONDS = 10**6  # of a second

log = logging.getLogger(__name__)


def read_held(database: Database, begins: datetime, ends: datetime) -> Mapping[str, int] | None:
    """Returns what the services of each tenant held between two whole quarter-hours, in billionths; None: unknown.

    It is known as far as nodes have reported. The policy's pricing decides whether a GPU in use counts whole, and
    whether all of its node does.
    """
    start, stop = (round(moment.timestamp()) * MICROSECONDS for moment in (begins, ends))
    pricing, nodes = database.read(lambda connection: _nodes(connection, start, stop))
    found = Counter[str]()
    for node, reported_at in nodes:
        try:
            read = partial(read_usage, node=node, reported_at=reported_at, start=start, stop=stop, energy=False)
            facts = database.read(read)
            found.update(held_by_tenant(facts, start, stop, pricing))
        except TooMuchUsage as error:
            log.warning("held_cost_unknown", extra={"node": node, "error": str(error)})
            return None
    return found


def held_by_tenant(facts: NodeUsage, start: int, stop: int, pricing: str) -> Mapping[str, int]:
    """Returns what the services of each tenant held of a node, in billionths; jobs are left out, as in plans' costs.

    A GPU with any copies costs its price once, however many there are; with pricing `share` it costs their part of it.
    A node that is billed whole costs the price of all its GPUs, divided among all copies there by their weights; its
    purchase at the time decides.
    """
    services = [interval for interval in facts.usage if not interval.job]
    if pricing != "share":
        # Where one of them is dedicated, those that are there pay the whole GPU.
        services = [replace(interval, dedicated=True) for interval in services]
    whole = [owned for owned in facts.owned if pays_whole_node(pricing, owned.purchase)]
    single = [owned for owned in facts.owned if owned not in whole]
    parts = [(NodeUsage(single, facts.rates, services), 1)]
    if whole:  # as if all ran on one GPU at the price of all of them
        together = [replace(interval, gpu=0) for interval in services]
        parts += [(NodeUsage([replace(owned, gpus=1)], facts.rates, together), owned.gpus) for owned in whole]
    found = Counter[str]()
    for part, gpus in parts:
        for line, amount in allocate(part, start, stop).items():
            if line.kind == "used":
                found[line.tenant] += amount.nano * gpus
    return found


def _nodes(connection: Connection, start: int, stop: int) -> tuple[str, list[tuple[str, int]]]:
    return usage.pricing(connection), usage.serving_nodes(connection, start, stop)

"""Accounts for final usage, a few nodes in a transaction, and corrects for late reports. Twice equals once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from app.ledger.allocation import Lines, allocate, differences
from app.ledger.facts import FOREVER, QUARTER, AllocatedAmount, AllocationLine, GpuRate, NodeUsage, OwnedGpus, Usage
from app.store.money import allocations, usage
from app.store.money.allocations import LedgerEntry, OpenAccount

NODES_AT_ONCE = 8
AGAIN_AT_ONCE = 24 * 4 * QUARTER  # a day of a node, in one transaction

Span = tuple[int, int]


def account(connection: Connection, limit: int = NODES_AT_ONCE) -> int:
    """Account for what is due of a few nodes, in the caller's transaction; how many nodes that were.

    Who holds a node's account writes its lines, the sums over them and how far it got: all of it or nothing.
    """
    due = allocations.due(connection, limit)
    if not due:
        return 0
    news = allocations.take_news(connection, [one.node for one in due])
    again, ahead, rest = defaultdict[Span, list[OpenAccount]](list), defaultdict[Span, list[OpenAccount]](list), {}
    for one in due:
        since = _looked_at_again(one, news.get(one.node))
        if since < one.allocated_until:
            until = min(one.allocated_until, since + AGAIN_AT_ONCE)
            again[since, until].append(one)
            if until < one.allocated_until:
                rest[one.node] = until
        if one.reach > one.allocated_until:
            ahead[one.allocated_until, one.reach].append(one)
    for span, accounts in again.items():
        _account_again(connection, accounts, *span)
    for span, accounts in ahead.items():
        facts = known(connection, {one.node: one.heard for one in accounts}, *span)
        lines = {node: allocate(of, *span) for node, of in facts.items()}
        allocations.write(connection, entries_of(lines, facts), correction=False)
    allocations.look_again(connection, rest)
    allocations.advance(connection, [(one.node, max(one.reach, one.allocated_until), _gap(one)) for one in due])
    return len(due)


def known(connection: Connection, heard: Mapping[str, int], start: int, stop: int) -> dict[str, NodeUsage]:
    """All that decides these nodes' lines; `heard` is when each was heard last."""
    nodes = sorted(heard)
    owned, used = defaultdict[str, list[OwnedGpus]](list), defaultdict[str, list[Usage]](list)
    energy = defaultdict[str, dict[tuple[int, int], int]](dict)
    rates = defaultdict[tuple[str, str, str], list[GpuRate]](list)
    for row in usage.owned(connection, nodes, start, stop):
        whole = (*row[1:8], FOREVER if row.stop is None else row.stop)
        owned[row.node].append(OwnedGpus(*whole))
    types = sorted({one.gpu_type for of in owned.values() for one in of})
    for row in usage.rates(connection, types, start, stop):
        rate = GpuRate(row.nano_per_hour, row.start, FOREVER if row.stop is None else row.stop)
        rates[row.gpu_type, row.region, row.purchase].append(rate)
    for row in usage.overlapping(connection, nodes, start, stop):
        # What nobody has ended is vouched for until its node was heard last.
        ends = heard[row.node] if row.stop is None else row.stop
        ends = ends if row.believed is None else min(ends, row.believed)
        told = (*row[1:12], ends, row.doubted or 0)
        used[row.node].append(Usage(*told))
    for row in usage.energy(connection, nodes, start, stop):
        energy[row.node][row.slice, row.gpu] = row.energy_mj
    return {node: NodeUsage(owned[node], rates, used[node], heard[node], energy[node]) for node in nodes}


def entries_of(lines: Mapping[str, Lines], facts: Mapping[str, NodeUsage]) -> list[LedgerEntry]:
    """Lines of nodes as the store takes them."""
    ways = {one.id: (one.gpu_type, one.region, one.purchase) for of in facts.values() for one in of.owned}
    found = []
    for node, of in lines.items():
        for line, amount in of.items():
            amounts = (amount.gpu_microseconds, amount.nano, amount.energy_mj)
            entry: tuple[Any, ...] = (node, *ways[line.owned], *line, *amounts)
            found.append(LedgerEntry(*entry))
    return found


def _account_again(connection: Connection, accounts: Sequence[OpenAccount], start: int, stop: int) -> None:
    """Write counter-entries for lines that are no longer right."""
    facts = known(connection, {one.node: one.heard for one in accounts}, start, stop)
    stand = _standing(connection, sorted(facts), start, stop)
    wanted = {}
    for node, of in facts.items():
        # Minutes are forgotten before money is: what was read of energy then still stands.
        energy = {**_energy(stand[node]), **of.energy_mj}
        wanted[node] = allocate(NodeUsage(of.owned, of.rates, of.usage, of.heard, energy), start, stop)
    entries = {node: differences(lines, stand[node]) for node, lines in wanted.items()}
    allocations.write(connection, entries_of(entries, facts), correction=True)


def _standing(connection: Connection, nodes: Sequence[str], start: int, stop: int) -> dict[str, Lines]:
    found: dict[str, Lines] = {node: {} for node in nodes}
    for row in allocations.standing(connection, nodes, start, stop):
        node, *line, times, nano, energy = row
        found[node][AllocationLine(*line)] = AllocatedAmount(times, nano, energy)
    return found


def _energy(lines: Lines) -> dict[tuple[int, int], int]:
    found: dict[tuple[int, int], int] = {}
    for line, amount in lines.items():
        if amount.energy_mj is not None:
            place = (line.slice, line.gpu)
            found[place] = found.get(place, 0) + amount.energy_mj
    return found


def _looked_at_again(one: OpenAccount, news: int | None) -> int:
    """From which slice on: usage was told late, or the node is back and vouches for what was presumed."""
    since: Iterable[int] = [one.allocated_until]
    since = [*since, news] if news is not None else since
    if one.gap_since is not None and one.gap_since < one.heard:
        since = [*since, one.gap_since]
    first = max(min(since), one.horizon)
    return first - first % QUARTER


def _gap(one: OpenAccount) -> int | None:
    """Since when lines of this node rest on presumption."""
    if one.reach > max(one.heard, one.allocated_until):
        begins = max(one.heard, one.allocated_until)
        return begins if one.gap_since is None or one.gap_since < one.heard else one.gap_since
    return None if one.gap_since is None or one.gap_since < one.heard else one.gap_since

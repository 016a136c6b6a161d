"""Accounts for a node's final usage in one transaction, and corrects for late reports. Twice equals once."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection

from app.ledger.allocation import Lines, TooMuchUsage, allocate, differences
from app.ledger.facts import FOREVER, QUARTER, AllocatedAmount, AllocationLine, GpuRate, NodeUsage, OwnedGpus, Usage
from app.store.money import allocations, quarantine, usage
from app.store.money.allocations import LedgerEntry, OpenAccount

DIVIDING_SECONDS = 10.0  # Postgres ends a transaction that is idle for longer than 15
MOST_INTERVALS = 100_000  # of a node, in memory


@dataclass(frozen=True, slots=True)
class Span:
    """The most slices of a node that one transaction accounts for."""

    ahead: int  # for the first time
    corrected: int  # because of late reports


LONGEST = Span(24, 96)


def account(connection: Connection, node: str, span: Span = LONGEST) -> bool:
    """Accounts for what is due of a node, in the caller's transaction; returns False if nothing is.

    The holder of a node's account writes its lines, the sums over them and how far it got: all of it or nothing.
    Raises TooMuchUsage if it would take too long; a shorter span may do.
    """
    due = allocations.hold(connection, node, span.ahead)
    if due is None:
        return False
    since = _first_to_correct(due, allocations.take_news(connection, node))
    if since < due.allocated_until:
        until = min(due.allocated_until, since + span.corrected * QUARTER)
        _correct(connection, due, since, until)
        if until < due.allocated_until:
            allocations.look_again(connection, node, until)
    if due.reach > due.allocated_until:
        facts = read_usage(connection, node, due.reported_at, due.allocated_until, due.reach)
        lines = _divide(facts, due.allocated_until, due.reach)
        allocations.write(connection, entries_of(node, lines, facts), correction=False)
    allocations.advance(connection, node, max(due.reach, due.allocated_until), _gap(due))
    if due.is_quarantined:
        quarantine.release(connection, node)
    return True


def read_usage(
    connection: Connection, node: str, reported_at: int, start: int, stop: int, *, energy: bool = True
) -> NodeUsage:
    """Returns all that decides the node's lines; `reported_at` is when it reported last."""
    owned = [
        OwnedGpus(
            row.id, row.gpus, row.gpu_type, row.region, row.purchase, row.memory_gib, row.start,
            FOREVER if row.stop is None else row.stop,
        )
        for row in usage.list_owned_gpus(connection, node, start, stop)
    ]  # fmt: skip
    rates = defaultdict[tuple[str, str, str], list[GpuRate]](list)
    for row in usage.rates(connection, sorted({gpus.gpu_type for gpus in owned}), start, stop):
        rate = GpuRate(row.nano_per_hour, row.start, FOREVER if row.stop is None else row.stop)
        rates[row.gpu_type, row.region, row.purchase].append(rate)
    intervals = usage.overlapping(connection, node, start, stop, MOST_INTERVALS + 1)
    if len(intervals) > MOST_INTERVALS:
        raise TooMuchUsage(f"it reports more than {MOST_INTERVALS} intervals of usage")
    used = []
    for row in intervals:
        # Usage without an end is certain until the node reported last.
        ends = reported_at if row.stop is None else row.stop
        ends = ends if row.believed is None else min(ends, row.believed)
        reported = (*row[:11], ends, row.doubted or 0)
        used.append(Usage(*reported))
    measured = usage.energy(connection, node, start, stop) if energy else ()
    by_place = {(row.slice, row.gpu): row.energy_mj for row in measured}
    return NodeUsage(owned, rates, used, reported_at, by_place, usage.pricing(connection))


def entries_of(node: str, lines: Lines, facts: NodeUsage) -> list[LedgerEntry]:
    """Returns the lines of a node as the store takes them."""
    ways = {owned.id: (owned.gpu_type, owned.region, owned.purchase) for owned in facts.owned}
    found = []
    for line, amount in lines.items():
        amounts = (amount.gpu_microseconds, amount.nano, amount.energy_mj)
        entry: tuple[Any, ...] = (node, *ways[line.owned], *line, *amounts)
        found.append(LedgerEntry(*entry))
    return found


def _divide(facts: NodeUsage, start: int, stop: int) -> Lines:
    began = time.monotonic()
    lines = allocate(facts, start, stop)
    if time.monotonic() - began > DIVIDING_SECONDS:
        raise TooMuchUsage(f"dividing it took longer than {DIVIDING_SECONDS:g} s")
    return lines


def _correct(connection: Connection, due: OpenAccount, start: int, stop: int) -> None:
    """Writes counter-entries for lines that are no longer right."""
    facts = read_usage(connection, due.node, due.reported_at, start, stop)
    written = _read_written(connection, due.node, start, stop)
    # Minutes are forgotten before money is: energy that was read then still counts.
    energy = {**_energy(written), **facts.energy_mj}
    wanted = _divide(replace(facts, energy_mj=energy), start, stop)
    entries = entries_of(due.node, differences(wanted, written), facts)
    allocations.write(connection, entries, correction=True)


def _read_written(connection: Connection, node: str, start: int, stop: int) -> Lines:
    found: Lines = {}
    for row in allocations.read_written(connection, node, start, stop):
        *line, times, nano, energy = row
        found[AllocationLine(*line)] = AllocatedAmount(times, nano, energy)
    return found


def _energy(lines: Mapping[AllocationLine, AllocatedAmount]) -> dict[tuple[int, int], int]:
    found: dict[tuple[int, int], int] = {}
    for line, amount in lines.items():
        if amount.energy_mj is not None:
            place = (line.slice, line.gpu)
            found[place] = found.get(place, 0) + amount.energy_mj
    return found


def _first_to_correct(due: OpenAccount, news: int | None) -> int:
    """Returns the first slice to correct: usage was reported late, or the node is back and knows what was presumed."""
    since: Iterable[int] = [due.allocated_until]
    since = [*since, news] if news is not None else since
    if due.gap_since is not None and due.gap_since < due.reported_at:
        since = [*since, due.gap_since]
    first = max(min(since), due.horizon)
    return first - first % QUARTER


def _gap(due: OpenAccount) -> int | None:
    """Returns since when the lines of this node rest on presumption."""
    if due.reach > max(due.reported_at, due.allocated_until):
        begins = max(due.reported_at, due.allocated_until)
        return begins if due.gap_since is None or due.gap_since < due.reported_at else due.gap_since
    return None if due.gap_since is None or due.gap_since < due.reported_at else due.gap_since

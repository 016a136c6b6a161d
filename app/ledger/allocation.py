"""Every GPU's time in slices: who held which part, and what it cost. Pure, whole numbers only."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise
from operator import attrgetter, itemgetter
from typing import TypeAlias

from app.ledger.division import Shares, divide, shares_of
from app.ledger.facts import HOUR, QUARTER, AllocatedAmount, AllocationLine, GpuRate, NodeUsage, OwnedGpus, Usage
from app.manifests.prices import pays_whole_node

Lines = dict[AllocationLine, AllocatedAmount]
Stretches: TypeAlias = Sequence[tuple[int, int]]  # of time

MOST_PARTS = 1_000_000  # of stretches, one for each holder: some seconds of a processor

HANDED_OVER = 2  # copies of an instance at a time: one that comes, one that goes

Latest: TypeAlias = list[tuple[int, str, Usage]]  # a heap; the copy that began last comes first


class Holders:
    """The copies that pay, for moments in ascending order: of each instance at most the last two that began."""

    def __init__(self, usage: Sequence[Usage]) -> None:
        self._coming = sorted(usage, key=attrgetter("start", "id"), reverse=True)
        self._ends = [(interval.stop, interval.instance) for interval in usage]
        heapify(self._ends)
        self._begun: dict[str, Latest] = {}
        self._paying: dict[str, Sequence[Usage]] = {}
        self._holders: tuple[Usage, ...] = ()

    def at(self, moment: int) -> tuple[Usage, ...]:
        """Returns the copies that pay from this moment until the next start or stop, by id."""
        changed = set()
        while self._coming and self._coming[-1].start <= moment:
            copy = self._coming.pop()
            heappush(self._begun.setdefault(copy.instance, []), (-copy.start, copy.id, copy))
            changed.add(copy.instance)
        while self._ends and self._ends[0][0] <= moment:
            changed.add(heappop(self._ends)[1])
        if changed:
            for instance in changed:
                self._paying[instance] = _last_begun(self._begun.get(instance, []), moment)
                if not self._paying[instance]:
                    del self._paying[instance]
            self._holders = tuple(sorted((copy for some in self._paying.values() for copy in some), key=_id))
        return self._holders


def _last_begun(begun: Latest, moment: int) -> Sequence[Usage]:
    """Returns the copies that began last and still run; those that have ended leave the heap for good."""
    found: Latest = []
    while begun and len(found) < HANDED_OVER:
        latest = heappop(begun)
        if latest[2].stop > moment:
            found.append(latest)
    for copy in found:
        heappush(begun, copy)
    return [copy for _, _, copy in found]


def _id(interval: Usage) -> str:
    return interval.id


class TooMuchUsage(Exception):
    """A node's usage in this time takes too much work to divide in one transaction."""


@dataclass(slots=True)
class Effort:
    """The work that an allocation may still take."""

    parts: int

    def spend(self, parts: int) -> None:
        self.parts -= parts
        if self.parts < 0:
            raise TooMuchUsage("its usage begins and ends too often")


@dataclass(frozen=True, slots=True)
class Time:
    """The time for which a node's GPUs are paid. After `reported_at` nothing is certain."""

    start: int
    stop: int
    reported_at: int
    held: Stretches  # while there are copies, where the node is billed whole


def allocate(facts: NodeUsage, start: int, stop: int, most_parts: int = MOST_PARTS) -> Lines:
    """Returns the lines of the node's GPUs from `start` to `stop`, both ends of slices."""
    effort = Effort(most_parts)
    by_gpu: dict[int, list[Usage]] = {}
    for interval in facts.usage:
        by_gpu.setdefault(interval.gpu, []).append(interval)
    found: Lines = {}
    for owned in facts.owned:
        begins, ends = max(start, owned.start), min(stop, owned.stop)
        if begins < ends:
            rates = facts.rates.get((owned.gpu_type, owned.region, owned.purchase), ())
            time = Time(begins, ends, facts.reported_at, _held(facts, owned, begins, ends))
            for gpu in range(owned.gpus):
                _allocate_gpu(found, owned, gpu, by_gpu.get(gpu, ()), rates, time, effort)
    _divide_energy(found, facts.energy_mj)
    return found


def differences(
    wanted: Mapping[AllocationLine, AllocatedAmount], written: Mapping[AllocationLine, AllocatedAmount]
) -> Lines:
    """Returns the entries that turn the written lines into the wanted ones."""
    found: Lines = {}
    for line in wanted.keys() | written.keys():
        after, before = wanted.get(line, AllocatedAmount()), written.get(line, AllocatedAmount())
        if after != before and (after, before) != (AllocatedAmount(0, 0, None), AllocatedAmount(0, 0, 0)):
            energy = None
            if after.energy_mj != before.energy_mj:
                energy = (after.energy_mj or 0) - (before.energy_mj or 0)
            found[line] = AllocatedAmount(
                after.gpu_microseconds - before.gpu_microseconds, after.nano - before.nano, energy
            )
    return {line: found[line] for line in sorted(found)}


def cost(nano_per_hour: int, start: int, stop: int) -> int:
    """Returns the price of a stretch: the cost up to its end minus the cost up to its beginning, each a whole number.

    So a stretch costs the same however it is cut, and a whole hour exactly the price of an hour.
    """
    return nano_per_hour * stop // HOUR - nano_per_hour * start // HOUR


def _held(facts: NodeUsage, owned: OwnedGpus, start: int, stop: int) -> Stretches:
    """Returns when any copy is on a node that is billed whole: its empty GPUs are held with the others then."""
    if not pays_whole_node(facts.pricing, owned.purchase):
        return ()
    there = [interval for interval in facts.usage if interval.gpu < owned.gpus and interval.start < interval.stop]
    return _join([(max(start, copy.start), min(stop, copy.stop)) for copy in there if _overlaps(copy, start, stop)])


def _overlaps(copy: Usage, start: int, stop: int) -> bool:
    return copy.start < min(stop, copy.stop) and copy.stop > start


def _allocate_gpu(
    found: Lines, owned: OwnedGpus, gpu: int, usage: Sequence[Usage], rates: Sequence[GpuRate], of: Time, effort: Effort
) -> None:
    start, stop = of.start, of.stop
    present = [interval for interval in usage if _overlaps(interval, start, stop)]
    doubts = [(interval.stop, interval.doubted) for interval in usage if interval.stop < interval.doubted]
    if of.reported_at < stop:
        doubts.append((of.reported_at, stop))
    doubtful, holding = _join(doubts), Holders(present)
    known: dict[tuple[str, ...], Shares] = {}
    for begins, ends in pairwise(_cuts(present, rates, [*doubts, *of.held], start, stop)):
        holders = holding.at(begins)
        effort.spend(1 + len(holders))
        at, time, nano = begins - begins % QUARTER, ends - begins, cost(_rate(rates, begins), begins, ends)
        evidence = "gap" if _is_within(begins, doubtful) else "measured"
        if not holders:
            kind = "idle" if _is_within(begins, of.held) else "unallocated"
            line = AllocationLine(at, gpu, owned.id, "", "", "", "", "", kind, evidence)
            found.setdefault(line, AllocatedAmount()).add(time, nano)
            continue
        ids = tuple(interval.id for interval in holders)
        shares = known.get(ids) or known.setdefault(ids, shares_of(holders, owned.memory_gib))
        times, prices = divide(time, shares), divide(nano, shares)
        for interval, part, price in zip(holders, times, prices, strict=False):
            if part or price:
                line = _line_of(at, gpu, owned.id, interval)
                found.setdefault(line, AllocatedAmount()).add(part, price)
        if times[-1] or prices[-1]:
            line = AllocationLine(at, gpu, owned.id, "", "", "", "", "", "idle", evidence)
            found.setdefault(line, AllocatedAmount()).add(times[-1], prices[-1])


def _line_of(at: int, gpu: int, owned: int, copy: Usage) -> AllocationLine:
    return AllocationLine(
        at, gpu, owned, copy.instance, copy.tenant, copy.service, copy.job, copy.model, "used", "measured"
    )


def _cuts(usage: Sequence[Usage], rates: Sequence[GpuRate], others: Stretches, start: int, stop: int) -> list[int]:
    """Returns the moments at which a slice ends, or a price, the holders or anything else about the GPU change."""
    found = {start, stop, *range(start - start % QUARTER, stop, QUARTER)}
    for interval in usage:
        found.update((interval.start, interval.stop))
    for rate in rates:
        found.update((rate.start, rate.stop))
    for stretch in others:
        found.update(stretch)
    return sorted(cut for cut in found if start <= cut <= stop)


def _join(times: Stretches) -> Stretches:
    """Returns the same times as stretches that are apart, in order."""
    found: list[tuple[int, int]] = []
    for start, stop in sorted(times):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], stop))
        else:
            found.append((start, stop))
    return found


def _is_within(at: int, stretches: Stretches) -> bool:
    place = bisect_right(stretches, at, key=itemgetter(0))
    return place > 0 and at < stretches[place - 1][1]


def _rate(rates: Sequence[GpuRate], at: int) -> int:
    return next((rate.nano_per_hour for rate in rates if rate.start <= at < rate.stop), 0)


def _divide_energy(found: Lines, energy_mj: Mapping[tuple[int, int], int]) -> None:
    """Divides a GPU's energy in a slice like its time."""
    if not energy_mj:
        return
    for place, lines in _group_by_place(found):
        if place in energy_mj:
            times = [found[line].gpu_microseconds for line in lines]
            shares = Shares(tuple(times), sum(times))
            for line, part in zip(lines, divide(energy_mj[place], shares), strict=True):
                found[line].energy_mj = part


def _group_by_place(found: Lines) -> Iterator[tuple[tuple[int, int], list[AllocationLine]]]:
    places: dict[tuple[int, int], list[AllocationLine]] = {}
    for line in found:
        places.setdefault((line.slice, line.gpu), []).append(line)
    for place, lines in places.items():
        yield place, sorted(lines)

"""Every GPU's time in slices: who held which part, and what it cost. Pure, whole numbers only."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from app.ledger.division import Shares, divided, shares_of
from app.ledger.facts import HOUR, QUARTER, AllocatedAmount, AllocationLine, GpuRate, NodeUsage, OwnedGpus, Usage

Lines = dict[AllocationLine, AllocatedAmount]

HANDED_OVER = 2  # copies of an instance at a time: one that comes, one that goes


def allocate(facts: NodeUsage, start: int, stop: int) -> Lines:
    """Returns the lines of the node's GPUs from `start` to `stop`, both ends of slices."""
    by_gpu: dict[int, list[Usage]] = {}
    for one in facts.usage:
        by_gpu.setdefault(one.gpu, []).append(one)
    found: Lines = {}
    for owned in facts.owned:
        begins, ends = max(start, owned.start), min(stop, owned.stop)
        if begins < ends:
            rates = facts.rates.get((owned.gpu_type, owned.region, owned.purchase), ())
            for gpu in range(owned.gpus):
                _allocate_gpu(found, owned, gpu, by_gpu.get(gpu, ()), rates, facts.heard, begins, ends)
    _divide_energy(found, facts.energy_mj)
    return found


def differences(
    wanted: Mapping[AllocationLine, AllocatedAmount], standing: Mapping[AllocationLine, AllocatedAmount]
) -> Lines:
    """Returns the entries that turn the written lines into the wanted ones."""
    found: Lines = {}
    for line in wanted.keys() | standing.keys():
        after, before = wanted.get(line, AllocatedAmount()), standing.get(line, AllocatedAmount())
        if after != before and (after, before) != (AllocatedAmount(0, 0, None), AllocatedAmount(0, 0, 0)):
            energy = None
            if after.energy_mj != before.energy_mj:
                energy = (after.energy_mj or 0) - (before.energy_mj or 0)
            found[line] = AllocatedAmount(
                after.gpu_microseconds - before.gpu_microseconds, after.nano - before.nano, energy
            )
    return {line: found[line] for line in sorted(found)}


def cost(nano_per_hour: int, start: int, stop: int) -> int:
    """The price of a stretch: what has run up at its end, less what had at its beginning, each a whole number.

    So a stretch costs the same however it is cut, and a whole hour exactly the price of an hour.
    """
    return nano_per_hour * stop // HOUR - nano_per_hour * start // HOUR


def _allocate_gpu(
    found: Lines, owned: OwnedGpus, gpu: int, usage: Sequence[Usage], rates: Sequence[GpuRate], heard: int, start: int,
    stop: int,
) -> None:  # fmt: skip
    coming = sorted((one for one in usage if one.start < min(stop, one.stop) and one.stop > start), key=_end_of_wait)
    doubts = [(one.stop, one.doubted) for one in usage if one.stop < one.doubted]
    if heard < stop:
        doubts.append((heard, stop))
    known: dict[tuple[str, ...], Shares] = {}
    residents: list[Usage] = []
    for begins, ends in pairwise(_cuts(coming, rates, doubts, start, stop)):
        while coming and coming[-1].start <= begins:
            insort(residents, coming.pop(), key=_id)
        residents = [one for one in residents if one.stop > begins]
        holders = _holders(residents)
        at, time, nano = begins - begins % QUARTER, ends - begins, cost(_rate(rates, begins), begins, ends)
        evidence = "gap" if doubts and _within(begins, doubts) else "measured"
        if not holders:
            line = AllocationLine(at, gpu, owned.id, "", "", "", "", "", "unallocated", evidence)
            found.setdefault(line, AllocatedAmount()).add(time, nano)
            continue
        ids = tuple(map(_id, holders))
        shares = known.get(ids) or known.setdefault(ids, shares_of(holders, owned.memory_gib))
        times, prices = divided(time, shares), divided(nano, shares)
        for one, part, price in zip(holders, times, prices, strict=False):
            if part or price:
                line = AllocationLine(
                    at, gpu, owned.id, one.instance, one.tenant, one.service, one.job, one.model, "used", "measured"
                )
                found.setdefault(line, AllocatedAmount()).add(part, price)
        if times[-1] or prices[-1]:
            line = AllocationLine(at, gpu, owned.id, "", "", "", "", "", "idle", evidence)
            found.setdefault(line, AllocatedAmount()).add(times[-1], prices[-1])


def _holders(residents: list[Usage]) -> list[Usage]:
    """Returns the copies that pay: of an instance at most the last two that began. A hand-over has no more."""
    if len(residents) <= HANDED_OVER:
        return residents
    by_instance: dict[str, list[Usage]] = {}
    for one in residents:
        by_instance.setdefault(one.instance, []).append(one)
    kept = [sorted(copies, key=_end_of_wait)[:HANDED_OVER] for copies in by_instance.values()]
    return sorted((one for copies in kept for one in copies), key=_id)


def _cuts(
    usage: Sequence[Usage], rates: Sequence[GpuRate], doubts: Sequence[tuple[int, int]], start: int, stop: int
) -> list[int]:
    """Returns the moments at which a slice ends, or a price, the holders or our knowledge of them change."""
    found = {start, stop, *range(start - start % QUARTER, stop, QUARTER)}
    for one in usage:
        found.update((one.start, one.stop))
    for rate in rates:
        found.update((rate.start, rate.stop))
    for doubt in doubts:
        found.update(doubt)
    return sorted(cut for cut in found if start <= cut <= stop)


def _within(at: int, times: Sequence[tuple[int, int]]) -> bool:
    return any(start <= at < stop for start, stop in times)


def _end_of_wait(one: Usage) -> tuple[int, str]:
    return -one.start, one.id


def _id(one: Usage) -> str:
    return one.id


def _rate(rates: Sequence[GpuRate], at: int) -> int:
    return next((rate.nano_per_hour for rate in rates if rate.start <= at < rate.stop), 0)


def _divide_energy(found: Lines, energy_mj: Mapping[tuple[int, int], int]) -> None:
    """A GPU's energy in a slice, divided as its time is."""
    if not energy_mj:
        return
    for place, lines in _by_place(found):
        if place in energy_mj:
            times = [found[line].gpu_microseconds for line in lines]
            shares = Shares(tuple(times), sum(times))
            for line, part in zip(lines, divided(energy_mj[place], shares), strict=True):
                found[line].energy_mj = part


def _by_place(found: Lines) -> Iterator[tuple[tuple[int, int], list[AllocationLine]]]:
    places: dict[tuple[int, int], list[AllocationLine]] = {}
    for line in found:
        places.setdefault((line.slice, line.gpu), []).append(line)
    for place, lines in places.items():
        yield place, sorted(lines)

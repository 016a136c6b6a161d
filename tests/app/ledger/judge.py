"""The judge of money: plain loops over fractions, from raw intervals. It shares no code with the ledger.

An instant's price is looked up, an instant's holders are listed, and stretches between any two changes are added up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import pairwise

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
MICROSECOND = timedelta(microseconds=1)
QUARTER = timedelta(minutes=15)
ALWAYS = datetime(9999, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Paid:
    """A GPU that is paid for."""

    node: str
    gpu: int
    kind: tuple[str, str, str]  # GPU type, region, purchase
    memory_gib: float
    start: datetime
    stop: datetime = ALWAYS


@dataclass(frozen=True)
class Priced:
    """What the hour of such a GPU costs, in billionths."""

    kind: tuple[str, str, str]
    nano_per_hour: int
    start: datetime
    stop: datetime = ALWAYS


@dataclass(frozen=True)
class Held:
    """Who held what."""

    id: str
    node: str
    gpu: int
    tenant: str
    service: str
    sm_percent: float
    memory_gib: float
    dedicated: bool
    start: datetime
    stop: datetime


@dataclass
class Verdict:
    """By (slice, node, gpu): the whole; and by (slice, node, gpu, tenant, service): the parts, whole and exact.

    `__idle__` and `__unallocated__` stand for a tenant.
    """

    whole: dict[tuple[datetime, str, int], int]
    parts: dict[tuple[datetime, str, int, str, str], int]
    exact: dict[tuple[datetime, str, int, str, str], Fraction]


def judged(
    paid: Sequence[Paid],
    prices: Sequence[Priced],
    held: Sequence[Held],
    start: datetime,
    stop: datetime,
    pricing: str = "node",
) -> Verdict:
    """What all GPUs came to between two ends of slices."""
    verdict = Verdict(defaultdict(int), defaultdict(int), defaultdict(Fraction))
    for gpu in paid:
        mine = [one for one in held if (one.node, one.gpu) == (gpu.node, gpu.gpu)]
        moments = {start, stop, gpu.start, gpu.stop} | {one.start for one in mine} | {one.stop for one in mine}
        moments |= {edge for price in prices if price.kind == gpu.kind for edge in (price.start, price.stop)}
        moments |= set(quarters(start, stop))
        inside = sorted(moment for moment in moments if max(start, gpu.start) <= moment <= min(stop, gpu.stop))
        for begins, ends in pairwise(inside):
            if any(one.start <= begins and ends <= one.stop for one in mine):
                _judge_stretch(verdict, gpu, prices, mine, begins, ends)
            else:
                _judge_empty(verdict, gpu, prices, _beside(gpu, paid, held, pricing), begins, ends)
    return verdict


def _beside(gpu: Paid, paid: Sequence[Paid], held: Sequence[Held], pricing: str) -> list[tuple[datetime, datetime]]:
    """When a copy is on any GPU of a rented node for which an empty one of it is paid, too."""
    if pricing != "node" or gpu.kind[2] not in ("onDemand", "spot"):
        return []
    return [
        (max(one.start, other.start), min(one.stop, other.stop))
        for one in held
        for other in paid
        if one.node == gpu.node and (other.node, other.gpu) == (one.node, one.gpu) and other.kind == gpu.kind
    ]


def _judge_empty(
    verdict: Verdict,
    gpu: Paid,
    prices: Sequence[Priced],
    beside: Sequence[tuple[datetime, datetime]],
    begins: datetime,
    ends: datetime,
) -> None:
    edges = {edge for stretch in beside for edge in stretch if begins < edge < ends} | {begins, ends}
    for start, stop in pairwise(sorted(edges)):
        price = 0
        for one in prices:
            if one.kind == gpu.kind and one.start <= start < one.stop:
                price = one.nano_per_hour
        nano = run_up(price, stop) - run_up(price, start)
        place = (EPOCH + (start - EPOCH) // QUARTER * QUARTER, gpu.node, gpu.gpu)
        name = "__idle__" if any(first <= start and stop <= last for first, last in beside) else "__unallocated__"
        verdict.whole[place] += nano
        verdict.parts[*place, name, ""] += nano
        verdict.exact[*place, name, ""] += nano


def quarters(start: datetime, stop: datetime) -> Iterable[datetime]:
    at = start
    while at <= stop:
        yield at
        at += QUARTER


def run_up(nano_per_hour: int, at: datetime) -> int:
    """What a GPU had cost since 1970 at this price, in whole billionths."""
    exact = Fraction((at - EPOCH) // MICROSECOND, HOUR // MICROSECOND) * nano_per_hour
    return exact.numerator // exact.denominator


def total(paid: Sequence[Paid], prices: Sequence[Priced], start: datetime, stop: datetime) -> int:
    """GPU-hours x price between two moments, whoever used them."""
    found = 0
    for gpu in paid:
        for price in prices:
            begins, ends = max(start, gpu.start, price.start), min(stop, gpu.stop, price.stop)
            if price.kind == gpu.kind and begins < ends:
                found += run_up(price.nano_per_hour, ends) - run_up(price.nano_per_hour, begins)
    return found


def _judge_stretch(
    verdict: Verdict, gpu: Paid, prices: Sequence[Priced], mine: Sequence[Held], begins: datetime, ends: datetime
) -> None:
    price = 0
    for one in prices:
        if one.kind == gpu.kind and one.start <= begins < one.stop:
            price = one.nano_per_hour
    nano = run_up(price, ends) - run_up(price, begins)
    at = EPOCH + (begins - EPOCH) // QUARTER * QUARTER
    place = (at, gpu.node, gpu.gpu)
    verdict.whole[place] += nano
    holders = sorted((one for one in mine if one.start <= begins and ends <= one.stop), key=lambda one: one.id)
    memory = Fraction(gpu.memory_gib)
    by_sm = sum((Fraction(one.sm_percent) / 100 for one in holders), Fraction())
    by_memory = sum((Fraction(one.memory_gib) / memory for one in holders), Fraction())
    used = Fraction(1) if any(one.dedicated for one in holders) else min(Fraction(1), max(by_sm, by_memory))
    weights = [max(Fraction(one.sm_percent) / 100, Fraction(one.memory_gib) / memory) for one in holders]
    if sum(weights) == 0:
        weights = [Fraction(1)] * len(holders)
    quotas = [nano * used * weight / sum(weights) for weight in weights] + [nano * (1 - used)]
    whole = [quota.numerator // quota.denominator for quota in quotas]
    missing = nano - sum(whole)
    ranked = sorted(range(len(quotas)), key=lambda index: (-(quotas[index] - whole[index]), index))
    for index in ranked[:missing]:
        whole[index] += 1
    names = [(one.tenant, one.service) for one in holders] + [("__idle__", "")]
    for name, part, quota in zip(names, whole, quotas, strict=True):
        verdict.parts[*place, *name] += part
        verdict.exact[*place, *name] += quota

"""Explains what is planned above a service's load: what each reason costs, which rule keeps it, and until when."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise

from app.control.answer.explain.wire import HeadroomWire
from app.control.answer.explain.wording import clock, money, rate
from app.control.domain.snapshot import Snapshot
from app.control.domain.specs import slo_percentile
from app.control.domain.times import cycle_seconds, read_declared_rates, start_seconds
from app.store.fleet.load_points import LoadPoint
from solvers.forecast import SCARCE, Headroom, Keeper, Part, PlannedRate, Sample, account
from solvers.forecast.settings import DEFAULT

ROSE_SHARE = 1e-4  # of a rate: rates are sums over instances


@dataclass(frozen=True, slots=True)
class RecentLoads:
    """The load of a service in equal steps of the last half hour."""

    at: datetime  # now
    step_seconds: float
    points: Sequence[LoadPoint]


@dataclass(frozen=True, slots=True)
class HeadroomWhy:
    """What is planned above the load of a service, and what a request a second of it costs."""

    planned: float
    found: Headroom
    price: float  # an hour, of a request a second
    gives_way: bool = False  # to requests that arrive for others


def why_headroom(snapshot: Snapshot, name: str, recent: RecentLoads, price: float) -> HeadroomWhy | None:
    """Explains the headroom of a service by the forecast's own rules; None where nothing was counted."""
    expected = snapshot.expected.get(name)
    service = next(item for item in snapshot.declared if item.kind == "Service" and item.full_name == name)
    known = [point for point in recent.points if point.rate is not None]
    if expected is None or not known:
        return None
    now, step = recent.at.timestamp(), recent.step_seconds
    ends = [point.begins.timestamp() + step for point in known]
    samples = [Sample(end, step, (point.rate or 0.0) * step) for end, point in zip(ends, known, strict=True)]
    planned = PlannedRate(
        expected.rate_per_second, read_declared_rates(snapshot.declared)[name],
        cycle_seconds(snapshot.declared) + start_seconds(snapshot.declared)[name],
        expected.margin, expected.risen_margin or 0.0,
        expected.observed_seconds + max(0.0, now - snapshot.at.timestamp()), max(0.0, now - ends[-1]),
        now - max(_find_rises(known), default=-math.inf),
        now - max(_find_misses(known, slo_percentile(service.spec) / 100.0), default=-math.inf),
    )  # fmt: skip
    if expected.gives_way:
        planned = replace(planned, missed_seconds=math.inf, settings=SCARCE)
    found = account(samples, planned)
    return HeadroomWhy(planned.rate, found, price, expected.gives_way) if found else None


def _find_rises(points: Sequence[LoadPoint]) -> Iterator[float]:
    """Yields the moments at which the planned rate rose."""
    known = [(point.begins.timestamp(), point.planned) for point in points if point.planned is not None]
    return (at for (_, before), (at, after) in pairwise(known) if after > before * (1 + ROSE_SHARE))


def _find_misses(points: Sequence[LoadPoint], promised: float) -> Iterator[float]:
    """Yields the moments before which the SLO was missed over the whole cool-down."""
    for at, last in enumerate(points):
        since = last.begins.timestamp() - DEFAULT.cooldown_seconds
        window = [point for point in points[: at + 1] if point.begins.timestamp() > since]
        pairs = [(point.rate or 0.0, point.attained) for point in window if point.attained is not None]
        if sum(load * attained for load, attained in pairs) < promised * sum(load for load, _ in pairs):
            yield last.begins.timestamp()


def describe_headroom(why: HeadroomWhy) -> list[str]:
    """Returns the headroom in sentences."""
    found = why.found
    above = sum(part for _, part in found.parts)
    arrive = f"{rate(found.arriving)} requests a second arrive (mean of the last minute)"
    kept = KEEPERS[found.keeper].format(observed="five" if why.gives_way else "30")
    kept += f", at {_clock(found.falls_at)} at the earliest" if found.falls_at else ""
    last = [kept, GIVES_WAY] if why.gives_way else [kept]
    if above < LEAST_SHARE * why.planned:
        is_above = found.keeper == "load" and found.arriving > why.planned
        return [f"{arrive}, {rate(why.planned)} are planned for", *([ABOVE] if is_above else last)]
    minutes = f"{found.recall_seconds / 60:.3g}"
    words = PARTS | {"peak": f"{PARTS['peak']} {minutes}, which counts as {rate(found.peak)}"}
    parts = [
        f"{rate(part)} ({money(why.price * part)}) {words[name]}"
        for name, part in found.parts
        if part >= LEAST_SHARE * why.planned
    ]
    return [
        f"{arrive}, {rate(why.planned)} are planned for; of what its instances cost, the {rate(above)} above are "
        f"{money(why.price * above)} an hour: {', '.join(parts)}",
        *last,
    ]


LEAST_SHARE = 0.001  # of the planned rate; a smaller part is not worth a word
PARTS: dict[Part, str] = {
    "peak": "for its highest minute of the last",
    "headroom": "of headroom, since counts scatter",
    "declared": "for the declared rate",
    "margin": "as its learned margin",
    "trend": "for its trend",
    "kept": "from an earlier rate, as a plan falls only once it is 15 % too high",
}
GIVES_WAY = (
    "GPUs are short, so it gives way to requests of other services that arrive: neither a declared rate nor a missed "
    "SLO nor what its history says of the next minutes keeps a higher plan"
)
ABOVE = "the plan rises once the load is above it for longer or by more than noise explains"
KEEPERS: dict[Keeper, str] = {
    "peak": "this is given back once that minute no longer counts, if the load stays as it is",
    "load": "the load that arrives needs it: if it stays as it is, the plan does not fall",
    "declared": "the declared rate is the least until the load was observed for {observed} minutes; then this is given "
    "back",
    "rise": "this is given back no sooner than five minutes after the plan rose, if the load stays as it is",
    "miss": "this is given back no sooner than five minutes after the SLO was missed, if the load stays as it is",
    "settling": "this is given back once no second fall would follow soon, if the load stays as it is",
    "silent": "nothing was counted for a minute, and until something is the plan stays",
    "rises": "that is too little: the next cycle plans for more",
    "falls": "no rule keeps it: the next cycle plans for less, unless its history says that the load rises within ten "
    "minutes",
}


def write_headroom(why: HeadroomWhy) -> HeadroomWire:
    """Returns the headroom as the API spells it."""
    found = why.found
    return {
        "arrivingPerSecond": found.arriving,
        "plannedPerSecond": why.planned,
        "peakPerSecond": found.peak,
        "costPerHour": why.price * sum(part for _, part in found.parts),
        "parts": [{"part": name, "ratePerSecond": part, "costPerHour": why.price * part} for name, part in found.parts],
        "keptBy": found.keeper,
        "givesWay": why.gives_way,
        "fallsAt": None if found.falls_at is None else _moment(found.falls_at).isoformat(),
    }


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _clock(seconds: float) -> str:
    return clock(_moment(seconds).isoformat())

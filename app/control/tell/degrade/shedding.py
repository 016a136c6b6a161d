"""What gateways take of a service's requests when there is too little capacity: first they wait, then some are refused.

A request that would be late anyway helps nobody and makes the next one late too. So what waits is bounded for every
service, and where capacity falls short for longer, the share that cannot be answered in time is answered 503 at once,
with the time after which asking again makes sense.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor, log

from app.control.domain.snapshot import ExpectedLoad
from solvers.planning.plan import Plan

LEAST_SHARE = 0.05  # below it waiting is enough: loads breathe by as much
STEP = 0.05  # shares are whole steps,
BAND = 0.075  # and stay while the true one is as close as that
WAITS = 3.0  # times the SLO that a queue may hold where all is planned for: bursts pass, and are over soon
WAITS_SHORT = 1.0  # times the SLO where capacity falls short: what waits longer is late
LEAST_OPEN = 16  # requests
LIMIT_STEP = 1.25  # limits go by such factors
AGAIN_SOON = 2  # seconds: a burst
AGAIN_LATER = 30  # the next plan may have room
AGAIN_MUCH_LATER = 300  # nothing but a change of manifests or fleet helps


@dataclass(frozen=True, slots=True)
class Shedding:
    """What gateways take of one service's requests."""

    share: float = 0.0  # answered 503 at random
    queue_limit: int = 0  # open at once in all gateways together; beyond it 503; 0: none
    retry_after_seconds: int = AGAIN_SOON


@dataclass(frozen=True, slots=True)
class SloTarget:
    """What shedding needs to know of a service."""

    slo_ms: float
    is_attainable: bool = True  # some profile meets the SLO


def plan_shedding(
    plan: Plan,
    expected: Mapping[str, ExpectedLoad],
    promises: Mapping[str, SloTarget],
    pinned: Mapping[str, float] | None = None,
    before: Mapping[str, Shedding] | None = None,
    gateways: int = 1,
) -> dict[str, Shedding]:
    """By service, of the plan that stands: what is lost is not in it, whatever was planned once.

    `pinned` is carried beside the plan, `before` is what stood.
    """
    carried: dict[str, float] = defaultdict(float, pinned or {})
    for one in plan.instances:
        carried[one.service] += one.rate_per_second
    short = {one.service for one in plan.unserved}
    found = {}
    for name, promise in sorted(promises.items()):
        asked = _asked(expected.get(name), carried[name])
        missing = 1 - carried[name] / asked if name in short and asked > carried[name] else 0.0
        known = (before or {}).get(name, Shedding())
        share = _steady(missing, known.share)
        limit = _open_at_once(carried[name], promise.slo_ms, WAITS_SHORT if name in short else WAITS)
        found[name] = Shedding(share, ceil(limit / max(gateways, 1)), _again(share, carried[name], promise))
    return found


def _asked(expected: ExpectedLoad | None, carried: float) -> float:
    """What is being asked now, where it was seen; else what is expected: nobody is refused for what may yet come."""
    if expected is None:
        return carried
    return expected.seen_per_second if expected.observed_seconds > 0 else expected.rate_per_second


def _steady(missing: float, before: float) -> float:
    """In whole steps; as before, while that is about right."""
    if missing <= 0:
        return 0.0
    if before and abs(missing - before) < BAND:
        return before
    return 0.0 if missing < LEAST_SHARE else round(min(floor(missing / STEP + 1e-9) * STEP, 1.0), 2)


def _open_at_once(carried: float, slo_ms: float, waits: float) -> int:
    """As many as are answered in so many SLOs (Little's law), in steps: with every weight a new limit helps nobody."""
    steps = ceil(log(max(carried * slo_ms / 1000 * waits / LEAST_OPEN, 1.0)) / log(LIMIT_STEP))
    return round(LEAST_OPEN * LIMIT_STEP**steps)


def _again(share: float, carried: float, promise: SloTarget) -> int:
    if not promise.is_attainable:
        return AGAIN_MUCH_LATER
    return AGAIN_LATER if share > 0 or carried == 0 else AGAIN_SOON

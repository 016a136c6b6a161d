"""Plans what gateways do when capacity is short: first they queue requests, then they reject some.

A request that would be late anyway only delays the next one. So every queue is bounded, and where capacity stays short,
those that cannot be answered in time get a 503 at once, with the time after which a retry makes sense. Gateways know of
each copy how many open requests it answers in time, and reject what finds no room; of a service whose copies' batches
are unknown they reject the share that the plan leaves unserved.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil, floor, log

from app.control.domain.snapshot import ExpectedLoad
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance

LEAST_SHARE = 0.05  # below it queueing is enough: loads vary by as much
STEP_SHARE = 0.05  # shares change in whole steps,
BAND_SHARE = 0.075  # and stay while the true share is this close
QUEUE_SLOS = 3.0  # length of a queue in SLOs where the plan serves everything: bursts are over soon
SHORT_QUEUE_SLOS = 1.0  # where capacity is short: a request that waits longer is late
LEAST_OPEN_REQUESTS = 16
LIMIT_STEP_FACTOR = 1.25  # between two limits
RETRY_SOON_SECONDS = 2  # after a burst
RETRY_LATER_SECONDS = 30  # the next plan may have capacity
RETRY_MUCH_LATER_SECONDS = 300  # only a change of manifests or fleet helps


@dataclass(frozen=True, slots=True)
class Shedding:
    """The limits that gateways apply to the requests of a service."""

    share: float = 0.0  # of requests, that the plan leaves unserved: to be answered 503
    queue_limit: int = 0  # open requests in one gateway; beyond it 503; 0: no limit
    retry_after_seconds: int = RETRY_SOON_SECONDS
    in_time: Mapping[str, int] = field(default_factory=dict)  # by place: open requests that its copy answers in time


@dataclass(frozen=True, slots=True)
class SloTarget:
    """The SLO of a service, and whether it can be met."""

    slo_ms: float
    is_attainable: bool = True  # some profile meets it


def plan_shedding(
    plan: Plan,
    expected: Mapping[str, ExpectedLoad],
    targets: Mapping[str, SloTarget],
    pinned: Mapping[str, float] | None = None,
    before: Mapping[str, Shedding] | None = None,
    gateways: int = 1,
) -> dict[str, Shedding]:
    """Returns what gateways do by service, under the plan in force without what has been lost since.

    `pinned` are the rates of instances outside the plan, `before` is the last result.
    """
    carried: dict[str, float] = defaultdict(float, pinned or {})
    by_service: dict[str, list[Instance]] = defaultdict(list)
    for instance in plan.instances:
        carried[instance.service] += instance.rate_per_second
        by_service[instance.service].append(instance)
    short = {unserved.service for unserved in plan.unserved}
    found = {}
    for name, target in sorted(targets.items()):
        rate = _rate_now(expected.get(name), carried[name])
        missing = 1 - carried[name] / rate if name in short and rate > carried[name] else 0.0
        known = (before or {}).get(name, Shedding())
        share = _steady(missing, known.share)
        limit = _queue_limit(carried[name], target.slo_ms, SHORT_QUEUE_SLOS if name in short else QUEUE_SLOS)
        retry = _retry_seconds(share, carried[name], target)
        in_time = _count_in_time(by_service[name], target.slo_ms, max(gateways, 1))
        found[name] = Shedding(share, ceil(limit / max(gateways, 1)), retry, in_time)
    return found


def _rate_now(expected: ExpectedLoad | None, carried: float) -> float:
    """Returns the observed rate where there is one: no request is rejected for a forecast."""
    if expected is None:
        return carried
    return expected.observed_per_second if expected.observed_seconds > 0 else expected.rate_per_second


def _steady(missing: float, before: float) -> float:
    """Rounds down to whole steps; keeps the last share while it is close enough."""
    if missing <= 0:
        return 0.0
    if before and abs(missing - before) < BAND_SHARE:
        return before
    return 0.0 if missing < LEAST_SHARE else round(min(floor(missing / STEP_SHARE + 1e-9) * STEP_SHARE, 1.0), 2)


def _queue_limit(carried: float, slo_ms: float, slos: float) -> int:
    """Returns how many requests are answered within so many SLOs (Little's law), rounded up to a step."""
    steps = ceil(log(max(carried * slo_ms / 1000 * slos / LEAST_OPEN_REQUESTS, 1.0)) / log(LIMIT_STEP_FACTOR))
    return round(LEAST_OPEN_REQUESTS * LIMIT_STEP_FACTOR**steps)


def _count_in_time(instances: Iterable[Instance], slo_ms: float, gateways: int) -> dict[str, int]:
    """Returns by place how many open requests one gateway may have there, so that all are answered within the SLO.

    A request waits for the batch that runs and for those before its own, so it is in time if the batches of all that
    are open fit into the SLO. Each gateway may have one: only with more gateways than that are some late. Of two
    instances on one GPU the smaller figure counts.
    """
    found: dict[str, int] = {}
    for instance in instances:
        if instance.exec_ms > 0:
            most = ceil(max(1, floor(slo_ms / instance.exec_ms + 1e-9)) * instance.batch / gateways)
            place = f"{instance.node}/{instance.gpu}"
            found[place] = min(found.get(place, most), most)
    return found


def _retry_seconds(share: float, carried: float, target: SloTarget) -> int:
    if not target.is_attainable:
        return RETRY_MUCH_LATER_SECONDS
    return RETRY_LATER_SECONDS if share > 0 or carried == 0 else RETRY_SOON_SECONDS

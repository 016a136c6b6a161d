"""Detects overload, when more requests come than the ready copies can answer within the SLO, and limits open requests.

A batch server answers each request within the SLO while it has at most as many as fit into the batches that the SLO
has time for: that many `in_time`, its batch times the whole batches within the SLO. The control plane states it of each
copy. During an overload no copy has more open at once; a request that finds no copy with room gets a 503 with
Retry-After, because it would be late and make the next one late. A burst is no overload, and neither is what an SLO's
percentile forgives: one begins only after too many were open for some SLOs. It begins at once where the plan says that
it cannot serve all. It ends when all requests that came could have been answered in time without a limit, and few were
turned away: near the capacity an estimate of it errs by as much as what is missing, and without limits all are late.

Where a copy's batches are unknown, capacity is measured while copies are fully busy, and scaled as copies come and go.
Pure: the sidecar and simulated gateways use the same functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil, exp


@dataclass(frozen=True, slots=True)
class OverloadTuning:
    """The thresholds of an overload, and how the capacity is measured."""

    begins_seconds: float = 1.5  # with too many open requests; time with fewer is subtracted
    begins_slos: float = 1.5  # or this many SLOs, if longer: a burst answered in time is no overload
    begins_times: float = 2.0  # this many times what is answered within the SLO counts as too many
    ends_share: float = 0.25  # of the time in which a limit was not needed, that counts towards its end
    forgiven_times: float = 4.0  # so much more does time with fewer count where the percentile allows many late ones
    longest_look_seconds: float = 1.0  # that one look may account for
    ends_seconds: float = 5.0  # with almost no request turned away
    turned_away_share: float = 0.01  # of arriving requests, that counts as almost none
    admitted_share: float = 0.95  # of what is answered within the SLO, as copies are never loaded evenly
    most_unlimited_times: float = 3.0  # of what is answered within the SLO: how many might wait without a limit
    least_open_requests: int = 8
    measured_seconds: float = 2.0
    measured_slos: float = 4.0  # or this many SLOs, if longer: slow services answer rarely
    forgotten_seconds: float = 120.0  # after which a measured capacity may be outdated
    step_share: float = 0.1  # a limit within this share of the right one stays


TUNING = OverloadTuning()


@dataclass(frozen=True, slots=True)
class ReadyCopy:
    """A ready copy, as far as it matters here."""

    weight: float
    in_time: int = 0  # most open requests that it answers within the SLO; 0: unknown


@dataclass(frozen=True, slots=True)
class ServiceTarget:
    """The SLO of a service, and whether its plan serves all of its requests."""

    slo_seconds: float
    percentile: float = 0.0  # of requests, that must be in time; 0: unknown
    is_short: bool = False  # the plan leaves a part unserved


@dataclass(frozen=True, slots=True)
class ServiceLoad:
    """A service's counts at one gateway, since counting began."""

    ended: int  # requests: answered, failed or turned away
    turned_away: int  # of those, by the limit of an overload
    open: int  # now, waiting ones included
    ready: Mapping[str, ReadyCopy]


@dataclass(frozen=True, slots=True)
class Pressure:
    """The state of a service between two looks."""

    at: float = 0.0
    ended: int = 0
    turned_away: int = 0
    open: int = 0
    ready: Mapping[str, ReadyCopy] = field(default_factory=dict)
    answered_rate: float = 0.0  # requests answered per second
    capacity: float = 0.0  # the highest such rate, scaled to the ready copies
    over_seconds: float = 0.0
    calm_seconds: float = 0.0
    unlimited: float = 0.0  # requests that would be open without a limit
    most_open: int = 0  # the limit of open requests from now on; 0: none
    by_copy: Mapping[str, int] = field(default_factory=dict)  # the part of each copy; empty: no limits of copies


def update_pressure(before: Pressure | None, counted: ServiceLoad, target: ServiceTarget, now: float) -> Pressure:
    """Returns the service's state after another look; it starts again when the gateway's counts do."""
    observed = Pressure(now, counted.ended, counted.turned_away, counted.open, counted.ready)
    in_time = find_in_time(counted.ready)
    is_limited = target.is_short and bool(in_time)
    if before is None or counted.ended < before.ended or counted.turned_away < before.turned_away:
        return replace(observed, most_open=sum(in_time.values()), by_copy=in_time) if is_limited else observed
    if target.slo_seconds <= 0:
        return observed
    seconds = now - before.at
    if seconds <= 0:
        return before
    turned = counted.turned_away - before.turned_away
    answered = max(0, counted.ended - before.ended - turned)
    arrived = max(0, counted.ended - before.ended + counted.open - before.open)
    over = max(TUNING.measured_seconds, TUNING.measured_slos * target.slo_seconds)
    growth = _growth(before.ready, counted.ready)
    answered_rate = _towards(before.answered_rate * min(1.0, growth), answered / seconds, seconds / over)
    known = before.capacity * growth
    capacity = max(answered_rate, _towards(known, answered_rate, seconds / TUNING.forgotten_seconds))
    measured = replace(observed, answered_rate=answered_rate, capacity=capacity)
    look = min(seconds, TUNING.longest_look_seconds)
    if not in_time:
        at_once = max(capacity * target.slo_seconds, TUNING.least_open_requests)
        return _judge_by_capacity(before, measured, at_once, turned <= TUNING.turned_away_share * arrived, look, target)
    at_once = max(sum(in_time.values()), TUNING.least_open_requests)
    too_many = TUNING.begins_times * max(at_once, capacity * target.slo_seconds)
    unlimited = float(counted.open)
    if before.most_open:
        too_many = at_once
        unlimited_rate = max(capacity, sum(in_time.values()) / target.slo_seconds)
        backlog = max(before.unlimited, before.open) + arrived - unlimited_rate * seconds
        unlimited = min(max(backlog, unlimited), max(TUNING.most_unlimited_times * at_once, unlimited))
    # A request turned away would have been late, and would have made others late.
    forgiven = max(TUNING.turned_away_share, 1.0 - target.percentile / 100 if target.percentile else 0.0)
    is_over = unlimited > too_many or turned > forgiven * arrived
    begins = _begins_seconds(target)
    calmer = TUNING.ends_share if before.most_open else 1.0
    fewer = -look * calmer * _weigh_calm(target.percentile)
    # A limit of the whole service goes on as limits of its copies.
    over_before = begins if before.most_open and not before.by_copy else before.over_seconds
    too_long = max(0.0, over_before + (look if is_over else fewer))
    if not is_limited:
        is_limited = too_long > 0 if before.most_open else too_long >= begins
    state = replace(measured, over_seconds=min(too_long, begins), unlimited=unlimited)
    return replace(state, most_open=sum(in_time.values()), by_copy=in_time) if is_limited else state


def find_in_time(ready: Mapping[str, ReadyCopy]) -> dict[str, int]:
    """Returns how many open requests each copy answers in time, by weight where it is unknown; empty if all are."""
    known = [copy for copy in ready.values() if copy.in_time]
    if not known:
        return {}
    by_weight = sum(copy.in_time for copy in known) / max(sum(copy.weight for copy in known), 1e-9)
    return {name: copy.in_time or max(1, round(by_weight * copy.weight)) for name, copy in ready.items()}


def _begins_seconds(target: ServiceTarget) -> float:
    return max(TUNING.begins_seconds, TUNING.begins_slos * target.slo_seconds)


def _weigh_calm(percentile: float) -> float:
    """Returns by how much time with few open requests counts more, where the percentile allows many late ones."""
    allowed = 1.0 - percentile / 100 if percentile else 0.0
    return max(1.0, TUNING.forgiven_times * allowed / max(1.0 - allowed, 1e-9))


def _judge_by_capacity(
    before: Pressure, measured: Pressure, at_once: float, is_calm: bool, look: float, target: ServiceTarget
) -> Pressure:
    """Returns the state of a service whose copies' batches are unknown."""
    if before.most_open:
        calm = before.calm_seconds + look if is_calm else 0.0
        most = _steady(before.most_open, at_once) if calm < TUNING.ends_seconds else 0
        return replace(measured, calm_seconds=calm, most_open=most)
    too_many = max(0.0, before.over_seconds + (look if measured.open > TUNING.begins_times * at_once else -look))
    most = _steady(0, at_once) if too_many >= _begins_seconds(target) else 0
    return replace(measured, over_seconds=too_many, most_open=most)


def _growth(before: Mapping[str, ReadyCopy], after: Mapping[str, ReadyCopy]) -> float:
    """Returns by how much the capacity changed with copies that came and went, by their weights."""
    if before.keys() == after.keys():
        return 1.0
    stayed = before.keys() & after.keys()
    if not stayed:
        return 1.0
    stayed_share = sum(before[name].weight for name in stayed) / max(_weight(before), 1e-9)
    return stayed_share * _weight(after) / max(sum(after[name].weight for name in stayed), 1e-9)


def _weight(copies: Mapping[str, ReadyCopy]) -> float:
    return sum(copy.weight for copy in copies.values())


def _steady(before: int, at_once: float) -> int:
    most = max(TUNING.least_open_requests, ceil(TUNING.admitted_share * at_once))
    return before if abs(most - before) <= TUNING.step_share * before else most


def _towards(before: float, value: float, times: float) -> float:
    return value + (before - value) * exp(-times)

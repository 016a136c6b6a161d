"""Detects overload, when more requests come than the ready copies can answer within the SLO, and limits open requests.

During an overload only as many requests are open at once as the copies answer within the SLO; the rest get a 503 with
Retry-After. A burst is no overload: one begins only after twice that many were open for some seconds, and ends once
almost no request was turned away for some more. Capacity is measured while copies are fully busy, and scaled as copies
come and go. Pure: the sidecar and simulated gateways use the same functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, exp


@dataclass(frozen=True, slots=True)
class OverloadTuning:
    """The thresholds of an overload, and how the capacity is measured."""

    begins_seconds: float = 1.5  # with too many open requests; time with fewer is subtracted
    begins_slos: float = 1.5  # or this many SLOs, if longer: a burst answered in time is no overload
    begins_times: float = 2.0  # this many times what is answered within the SLO counts as too many
    longest_look_seconds: float = 1.0  # that one look may account for
    ends_seconds: float = 5.0  # with almost no request turned away
    turned_away_share: float = 0.01  # of arriving requests, that counts as almost none
    admitted_share: float = 0.95  # of what is answered within the SLO, as copies are never loaded evenly
    least_open_requests: int = 8
    measured_seconds: float = 2.0
    measured_slos: float = 4.0  # or this many SLOs, if longer: slow services answer rarely
    forgotten_seconds: float = 120.0  # after which a measured capacity may be outdated
    step_share: float = 0.1  # a limit within this share of the right one stays


TUNING = OverloadTuning()


@dataclass(frozen=True, slots=True)
class ServiceLoad:
    """A service's counts at one gateway, since counting began."""

    ended: int  # requests: answered, failed or turned away
    turned_away: int  # of those, by the limit of an overload
    open: int  # now, waiting ones included
    ready: Mapping[str, float]  # ready copies, with their weights


@dataclass(frozen=True, slots=True)
class Pressure:
    """The state of a service between two looks."""

    at: float = 0.0
    ended: int = 0
    turned_away: int = 0
    open: int = 0
    ready: Mapping[str, float] = field(default_factory=dict)
    answered_rate: float = 0.0  # requests answered per second
    capacity: float = 0.0  # the capacity: the highest such rate, scaled to the ready copies
    over_seconds: float = 0.0
    calm_seconds: float = 0.0
    most_open: int = 0  # the limit of open requests from now on; 0: none


def update_pressure(before: Pressure | None, counted: ServiceLoad, slo_seconds: float, now: float) -> Pressure:
    """Returns the service's state after another look; it starts again when the gateway's counts do."""
    now_is = Pressure(now, counted.ended, counted.turned_away, counted.open, counted.ready)
    if before is None or counted.ended < before.ended or counted.turned_away < before.turned_away or slo_seconds <= 0:
        return now_is
    seconds = now - before.at
    if seconds <= 0:
        return before
    turned = counted.turned_away - before.turned_away
    answered = counted.ended - before.ended - turned
    arrived = max(0, counted.ended - before.ended + counted.open - before.open)
    over = max(TUNING.measured_seconds, TUNING.measured_slos * slo_seconds)
    growth = _growth(before.ready, counted.ready)
    answered_rate = _towards(before.answered_rate * min(1.0, growth), max(0, answered) / seconds, seconds / over)
    known = before.capacity * growth
    capacity = max(answered_rate, _towards(known, answered_rate, seconds / TUNING.forgotten_seconds))
    at_once = max(capacity * slo_seconds, TUNING.least_open_requests)
    look = min(seconds, TUNING.longest_look_seconds)
    most, calm, too_many = 0, 0.0, 0.0
    if before.most_open:
        calm = before.calm_seconds + look if turned <= TUNING.turned_away_share * arrived else 0.0
        most = _steady(before.most_open, at_once) if calm < TUNING.ends_seconds else 0
    else:
        too_many = max(0.0, before.over_seconds + (look if counted.open > TUNING.begins_times * at_once else -look))
        most = _steady(0, at_once) if too_many >= max(TUNING.begins_seconds, TUNING.begins_slos * slo_seconds) else 0
    return Pressure(
        now,
        counted.ended,
        counted.turned_away,
        counted.open,
        counted.ready,
        answered_rate,
        capacity,
        too_many,
        calm,
        most,
    )


def _growth(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """Returns by how much the capacity changed with copies that came and went, by their weights."""
    if before.keys() == after.keys():
        return 1.0
    stayed = before.keys() & after.keys()
    if not stayed:
        return 1.0
    stayed_share = sum(before[name] for name in stayed) / max(sum(before.values()), 1e-9)
    return stayed_share * sum(after.values()) / max(sum(after[name] for name in stayed), 1e-9)


def _steady(before: int, at_once: float) -> int:
    most = max(TUNING.least_open_requests, ceil(TUNING.admitted_share * at_once))
    return before if abs(most - before) <= TUNING.step_share * before else most


def _towards(before: float, value: float, times: float) -> float:
    return value + (before - value) * exp(-times)

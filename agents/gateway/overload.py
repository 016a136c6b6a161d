"""Overload: more comes than the copies that are up answer, and what waits longer than the SLO helps nobody.

Then no more requests of the service are open at once than its copies answer within the SLO; the others are told at once
to come again. A burst is no overload: it begins only once twice as many have been open for some seconds, and it is over
once hardly anybody was turned away for some more. What copies answer is measured while they have more than enough to
do, and goes with the copies that come and go. Pure: the sidecar beside HAProxy and simulated gateways fold it alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, exp

BEGINS_SECONDS = 1.5  # that too many are open; time with fewer counts against it
BEGINS_SLOS = 1.5  # where that is longer: a burst that is answered in time is none
BEGINS_TIMES = 2.0  # as many as are answered within the SLO
LOOK_SECONDS = 1.0  # one look tells of no longer time
ENDS_SECONDS = 5.0  # that hardly anybody is turned away
HARDLY = 0.01  # of those who come
TAKEN = 0.95  # of what is answered within the SLO: copies are never loaded evenly
LEAST_OPEN = 8
MEASURED_SECONDS = 2.0
MEASURED_SLOS = 4.0  # where that is longer: slow services answer rarely
FORGOTTEN_SECONDS = 120.0  # in which a copy may have become slower
STEP = 0.1  # a limit stays while it is as near as that to the right one


@dataclass(frozen=True, slots=True)
class ServiceLoad:
    """A service at one gateway, since its counting began."""

    ended: int  # requests: answered, failed or turned away
    turned_away: int  # of those, by the limit of an overload
    open: int  # now, those that wait included
    ready: Mapping[str, float]  # the copies that are up, and their weights


@dataclass(frozen=True, slots=True)
class Pressure:
    """What is remembered of a service between two looks."""

    at: float = 0.0
    ended: int = 0
    turned_away: int = 0
    open: int = 0
    ready: Mapping[str, float] = field(default_factory=dict)
    lately: float = 0.0  # answered a second
    carried: float = 0.0  # the most of it, of copies that are up
    over_seconds: float = 0.0
    calm_seconds: float = 0.0
    most_open: int = 0  # open at once, from now on; 0: as many as come


def update_pressure(before: Pressure | None, counted: ServiceLoad, slo_seconds: float, now: float) -> Pressure:
    """The service after another look. A gateway that counts anew begins anew."""
    now_is = Pressure(now, counted.ended, counted.turned_away, counted.open, counted.ready)
    if before is None or counted.ended < before.ended or counted.turned_away < before.turned_away or slo_seconds <= 0:
        return now_is
    seconds = now - before.at
    if seconds <= 0:
        return before
    turned = counted.turned_away - before.turned_away
    answered = counted.ended - before.ended - turned
    came = max(0, counted.ended - before.ended + counted.open - before.open)
    over = max(MEASURED_SECONDS, MEASURED_SLOS * slo_seconds)
    grown = _grown(before.ready, counted.ready)
    lately = _towards(before.lately * min(1.0, grown), max(0, answered) / seconds, seconds / over)
    known = before.carried * grown
    carried = max(lately, _towards(known, lately, seconds / FORGOTTEN_SECONDS))
    at_once = max(carried * slo_seconds, LEAST_OPEN)
    look = min(seconds, LOOK_SECONDS)
    most, calm, too_many = 0, 0.0, 0.0
    if before.most_open:
        calm = before.calm_seconds + look if turned <= HARDLY * came else 0.0
        most = _steady(before.most_open, at_once) if calm < ENDS_SECONDS else 0
    else:
        too_many = max(0.0, before.over_seconds + (look if counted.open > BEGINS_TIMES * at_once else -look))
        most = _steady(0, at_once) if too_many >= max(BEGINS_SECONDS, BEGINS_SLOS * slo_seconds) else 0
    return Pressure(
        now, counted.ended, counted.turned_away, counted.open, counted.ready, lately, carried, too_many, calm, most
    )


def _grown(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """By how much copies that came and went change what all carry: each as much as its weight says."""
    if before.keys() == after.keys():
        return 1.0
    stayed = before.keys() & after.keys()
    if not stayed:
        return 1.0
    left = sum(before[name] for name in stayed) / max(sum(before.values()), 1e-9)
    return left * sum(after.values()) / max(sum(after[name] for name in stayed), 1e-9)


def _steady(before: int, at_once: float) -> int:
    most = max(LEAST_OPEN, ceil(TAKEN * at_once))
    return before if abs(most - before) <= STEP * before else most


def _towards(before: float, value: float, times: float) -> float:
    return value + (before - value) * exp(-times)

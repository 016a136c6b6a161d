"""Explains why residents do not fit on a GPU together: which ones, the limit, and the least change that helps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from math import ceil, floor, log10
from typing import Literal

from solvers.mudi.sharing.answer import NoRoom, SharingRelaxation
from solvers.mudi.sharing.closed import needed_percent, value_at
from solvers.mudi.sharing.find import LEAST_FIXED_POINT, FoundShares, find, raise_gpu
from solvers.mudi.sharing.problem import SharedGpu, SharingResident
from solvers.mudi.sharing.search import least_total

Fits = Callable[[SharedGpu], bool]
Change = Literal["sloMs", "ratePerSecond", "outstanding"]

MOST_TIMES = 1024.0  # a change beyond this is no help
NEAR = 1e-4  # relative: how closely the least change is determined
DIGITS = 4  # significant digits of the new value
TRIAL_WORK = 200  # boxes allowed for a trial change; what fits within them fits within more
TRIED_TOGETHER = 2  # so many leavers are tried in every combination; further ones are found one after another


def no_room(gpu: SharedGpu, found: FoundShares, work_limit: int) -> NoRoom:
    """Builds the negative answer for a GPU on which no SM% were found."""

    def fits(changed: SharedGpu) -> bool:
        return find(changed, min(work_limit, TRIAL_WORK)).percents is not None

    leavers = misfits(gpu, fits)
    least = least_change(gpu, fits)
    leaves = tuple(SharingRelaxation(name, "leaves", 0.0, 1.0) for name in leavers)
    return NoRoom(
        cannot_fit=leavers,
        reason=reason(gpu, found),
        relaxations=(least,) if least else leaves,
        is_proved=found.bound_percent is None,
        method=found.method,
        work=found.work,
    )


def reason(gpu: SharedGpu, found: FoundShares) -> str:
    """Describes the limit that binds."""
    for resident in gpu.residents:
        if needed_percent(resident, gpu.other_pressure) is None:
            company = f"under a pressure of {gpu.other_pressure:g}" if gpu.other_pressure else "alone"
            return _too_slow(resident, gpu.other_pressure, f"{company} on the GPU")
    if found.method != LEAST_FIXED_POINT:
        total = least_total(gpu)
        if total is not None and total > gpu.free_percent:
            return f"{total} % of the SMs are needed at least; {gpu.free_percent} % are free"
        verdict = "no SM% meet all SLOs" if found.bound_percent is None else "no SM% that meet all SLOs were found"
        return f"{verdict}; the search examined {found.work} boxes of SM%; {gpu.free_percent} % are free"
    raised = raise_gpu(gpu)
    if not raised.blocked[0]:
        return f"{raised.totals[0]} % of the SMs are needed; {gpu.free_percent} % are free"
    blocked = gpu.residents[int(raised.blocked[0]) - 1]
    pressure = gpu.other_pressure + sum(
        value_at(other.pressure, percent)
        for other, percent in zip(gpu.residents, raised.percents.tolist(), strict=True)
        if other is not blocked
    )
    return _too_slow(blocked, pressure, "next to neighbours at the least SM% they need")


def _too_slow(resident: SharingResident, pressure: float, company: str) -> str:
    took_ms = resident.latency_ms[-1][1] * (1 + resident.sensitivity * pressure)
    at_most = f"takes {took_ms:.4g} ms a batch at {resident.most_percent} % of the SMs"
    return f"{resident.name} {at_most} {company}; {resident.most_exec_ms:.4g} ms are allowed"


def misfits(gpu: SharedGpu, fits: Fits) -> tuple[str, ...]:
    """Returns the residents that must leave so that the others fit.

    They are the fewest possible if one or two are enough; of equal choices the first by name is taken."""
    hopeless = {r.name for r in gpu.residents if needed_percent(r, gpu.other_pressure) is None}
    staying = sorted({resident.name for resident in gpu.residents} - hopeless)
    for count in range(TRIED_TOGETHER + 1):
        for leaving in combinations(staying, count):
            if fits(without(gpu, hopeless | set(leaving))):
                return tuple(sorted(hopeless | set(leaving)))
    stay: set[str] = set()
    for name in staying:
        if fits(without(gpu, hopeless | (set(staying) - stay - {name}))):
            stay.add(name)
    return tuple(sorted(hopeless | (set(staying) - stay)))


def without(gpu: SharedGpu, names: set[str]) -> SharedGpu:
    return replace(gpu, residents=tuple(resident for resident in gpu.residents if resident.name not in names))


def least_change(gpu: SharedGpu, fits: Fits) -> SharingRelaxation | None:
    """Returns the change of one number of one resident, least relative to that number, under which all fit."""
    found = [change for resident in gpu.residents for change in changes(gpu, resident, fits)]
    return min(found, key=lambda change: (change.change, change.resident, change.what), default=None)


def changes(gpu: SharedGpu, resident: SharingResident, fits: Fits) -> Iterator[SharingRelaxation]:
    """Yields, for each of the resident's numbers, the least change that is enough on its own."""
    load: Change = "ratePerSecond" if resident.outstanding is None else "outstanding"
    numbers: tuple[Change, ...] = ("sloMs", load)
    for what in numbers:

        def enough(times: float, what: Change = what) -> bool:
            return fits(applied(gpu, resident, what, _value(resident, what, times)))

        times = _least_times(enough)
        if times is not None:
            old, new = _value(resident, what, 1.0), _value(resident, what, times)
            yield SharingRelaxation(resident.name, what, new, abs(new - old) / old)


def applied(gpu: SharedGpu, resident: SharingResident, what: Change, value: float) -> SharedGpu:
    """Returns the GPU with that number of that resident changed."""
    match what:
        case "sloMs":
            changed = replace(resident, slo_ms=value)
        case "ratePerSecond":
            changed = replace(resident, rate_per_second=value)
        case "outstanding":
            changed = replace(resident, outstanding=value)
    return replace(gpu, residents=tuple(changed if other is resident else other for other in gpu.residents))


def _value(resident: SharingResident, what: Change, times: float) -> float:
    """Returns the number made `times` easier, rounded to few digits towards the easier side."""
    if what == "sloMs":
        return _rounded(resident.slo_ms * times, ceil) if times > 1 else resident.slo_ms
    old = resident.rate_per_second if what == "ratePerSecond" else resident.requests_outstanding
    return _rounded(old / times, floor) if times > 1 else old


def _rounded(value: float, direction: Callable[[float], int]) -> float:
    digits = DIGITS - 1 - floor(log10(value))
    return float(f"{direction(value * 10.0**digits)}e{-digits}")


def _least_times(enough: Callable[[float], bool]) -> float | None:
    """Finds the least factor that is enough, by bisection; the factor returned was tried."""
    if not enough(MOST_TIMES):
        return None
    low, high = 1.0, MOST_TIMES
    while high / low > 1 + NEAR:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high

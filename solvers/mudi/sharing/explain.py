"""Why residents do not fit on a GPU together: who, in words, and the least change that would make them fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from math import ceil, floor, log10
from typing import Literal

from solvers.mudi.sharing.answer import NoRoom, SharingRelaxation
from solvers.mudi.sharing.closed import needed_percent, value_at
from solvers.mudi.sharing.find import LEAST_FIXED_POINT, FoundShares, find, raise_one
from solvers.mudi.sharing.problem import SharedGpu, SharingResident
from solvers.mudi.sharing.search import least_total

Fits = Callable[[SharedGpu], bool]
Change = Literal["sloMs", "ratePerSecond", "outstanding"]

MOST_TIMES = 1024.0  # a change beyond this is no help
NEAR = 1e-4  # relative: how closely the least change is found
DIGITS = 4  # of the value named
TRIAL_WORK = 200  # boxes a trial change may take: what fits within them fits within more
TRIED_TOGETHER = 2  # so many leavers are tried in every combination; more are found one after another


def no_room(gpu: SharedGpu, found: FoundShares, work_limit: int) -> NoRoom:
    """The honest no: `found` holds no SM%."""

    def fits(changed: SharedGpu) -> bool:
        return find(changed, min(work_limit, TRIAL_WORK)).percents is not None

    leavers = who_cannot_fit(gpu, fits)
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
    """The limit that binds, in words."""
    for resident in gpu.residents:
        if needed_percent(resident, gpu.other_pressure) is None:
            beside = f"beside a pressure of {gpu.other_pressure:g}" if gpu.other_pressure else "alone"
            return _too_slow(resident, gpu.other_pressure, f"{beside} on the GPU")
    if found.method != LEAST_FIXED_POINT:
        total = least_total(gpu)
        if total is not None and total > gpu.free_percent:
            return f"{total} % of the SMs are needed at least; {gpu.free_percent} % are free"
        proved = "no SM% are right" if found.bound_percent is None else "no right SM% were found"
        return f"{proved}, after {found.work} boxes of SM% were looked at; {gpu.free_percent} % are free"
    raised = raise_one(gpu)
    if not raised.blocked[0]:
        return f"{raised.totals[0]} % of the SMs are needed; {gpu.free_percent} % are free"
    who = int(raised.blocked[0]) - 1
    pressure = gpu.other_pressure + sum(
        value_at(other.pressure, percent)
        for other, percent in zip(gpu.residents, raised.percents.tolist(), strict=True)
        if other is not gpu.residents[who]
    )
    return _too_slow(gpu.residents[who], pressure, "beside the least that its neighbours need")


def _too_slow(resident: SharingResident, pressure: float, beside: str) -> str:
    took_ms = resident.latency_ms[-1][1] * (1 + resident.sensitivity * pressure)
    at_most = f"takes {took_ms:.4g} ms a batch at {resident.most_percent} % of the SMs"
    return f"{resident.name} {at_most} {beside}; {resident.most_exec_ms:.4g} ms are allowed"


def who_cannot_fit(gpu: SharedGpu, fits: Fits) -> tuple[str, ...]:
    """Who leaves so that the others fit: the fewest while these are one or two, by name where several would do."""
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
    """The change of one number of one resident, least relative to that number, under which all fit."""
    found = [change for resident in gpu.residents for change in changes(gpu, resident, fits)]
    return min(found, key=lambda each: (each.change, each.resident, each.what), default=None)


def changes(gpu: SharedGpu, resident: SharingResident, fits: Fits) -> Iterator[SharingRelaxation]:
    """For each of the resident's numbers, the least change that is enough by itself."""
    load: Change = "ratePerSecond" if resident.outstanding is None else "outstanding"
    whats: tuple[Change, ...] = ("sloMs", load)
    for what in whats:

        def enough(times: float, what: Change = what) -> bool:
            return fits(applied(gpu, resident, what, _value(resident, what, times)))

        times = _least_times(enough)
        if times is not None:
            old, new = _value(resident, what, 1.0), _value(resident, what, times)
            yield SharingRelaxation(resident.name, what, new, abs(new - old) / old)


def applied(gpu: SharedGpu, resident: SharingResident, what: Change, value: float) -> SharedGpu:
    """The GPU with that number of that resident changed."""
    match what:
        case "sloMs":
            changed = replace(resident, slo_ms=value)
        case "ratePerSecond":
            changed = replace(resident, rate_per_second=value)
        case "outstanding":
            changed = replace(resident, outstanding=value)
    return replace(gpu, residents=tuple(changed if other is resident else other for other in gpu.residents))


def _value(resident: SharingResident, what: Change, times: float) -> float:
    """The number made `times` easier, with few digits and never less easy than asked."""
    if what == "sloMs":
        return _rounded(resident.slo_ms * times, ceil) if times > 1 else resident.slo_ms
    old = resident.rate_per_second if what == "ratePerSecond" else resident.requests_outstanding
    return _rounded(old / times, floor) if times > 1 else old


def _rounded(value: float, direction: Callable[[float], int]) -> float:
    digits = DIGITS - 1 - floor(log10(value))
    return float(f"{direction(value * 10.0**digits)}e{-digits}")


def _least_times(enough: Callable[[float], bool]) -> float | None:
    """The least change that is enough, found by halving; what it returns was tried."""
    if not enough(MOST_TIMES):
        return None
    low, high = 1.0, MOST_TIMES
    while high / low > 1 + NEAR:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high

"""Judges the SM% of one GPU: missed SLOs and broken limits, in plain loops. It knows no solver."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from solvers.mudi.sharing.problem import Curve, SharedGpu, SharingResident

SLACK = 1e-9  # relative: the rounding of floating-point sums


def value_at(curve: Curve, percent: float) -> float:
    """Reads a curve: linear between its points, flat beyond them."""
    if percent <= curve[0][0]:
        return curve[0][1]
    for (low, at_low), (high, at_high) in pairwise(curve):
        if percent <= high:
            return at_low + (at_high - at_low) * (percent - low) / (high - low)
    return curve[-1][1]


def exec_ms(resident: SharingResident, percent: float, neighbours_pressure: float) -> float:
    """Returns the time of one batch, slowed by its neighbours."""
    return value_at(resident.latency_ms, percent) * (1 + resident.sensitivity * neighbours_pressure)


def neighbours_pressure(gpu: SharedGpu, percents: Mapping[str, int], name: str) -> float:
    total = gpu.other_pressure
    for other in gpu.residents:
        if other.name != name:
            total += value_at(other.pressure, percents[other.name])
    return total


def violations(gpu: SharedGpu, percents: Mapping[str, int]) -> list[str]:
    """Returns a sentence for every rule that these SM% break."""
    names = [resident.name for resident in gpu.residents]
    wrong = [f"{name} is not a resident of this GPU" for name in sorted(set(percents) - set(names))]
    wrong += [f"{name} has no SM%" for name in names if name not in percents]
    if wrong:
        return wrong
    for resident in gpu.residents:
        percent = percents[resident.name]
        if percent != int(percent) or not resident.least_percent <= percent <= resident.most_percent:
            allowed = f"whole SM% in {resident.least_percent}..{resident.most_percent} are allowed"
            wrong.append(f"{resident.name} has {percent:g} %; {allowed}")
            continue
        took_ms = exec_ms(resident, percent, neighbours_pressure(gpu, percents, resident.name))
        if took_ms > resident.most_exec_ms * (1 + SLACK):
            wrong.append(f"{resident.name} takes {took_ms:.6g} ms a batch; {resident.most_exec_ms:.6g} ms are allowed")
    total = sum(percents.values())
    if total > gpu.free_percent:
        wrong.append(f"{total} % of the SMs are assigned; {gpu.free_percent} % are free")
    return wrong

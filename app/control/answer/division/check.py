"""Checks a proposed division in plain loops that know nothing of how it was found: devices, memory, speeds, promises.

The judge checks the plan on the divided fleet. This asks what the judge does not know: whether these GPUs give these
devices, whether what is expected on them follows from what was measured on the whole GPU, and what is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from agents.contract.gpus import MigProfile
from app.control.answer.division.layouts import MigLayout
from solvers.planning.plan import Plan
from solvers.planning.problem import Curve, Problem

COMPUTE_SLICES = {8: 7, 4: 4}  # of a whole GPU, by its memory slices
SMALL_SHARE = 1e-5


def find_faults(
    whole: Problem, undivided: Plan, divided: Problem, plan: Plan, division: Mapping[str, MigLayout]
) -> Iterator[str]:
    """Yields what is wrong with a division and the plan on it; nothing where both are right."""
    for name, layout in division.items():
        if fault := find_layout_fault(layout.profile, layout.memory_share):
            yield f"{name}: {fault}"
        wanted = whole.nodes[name].gpu_count * layout.profile.most
        if divided.nodes[name].gpu_count != wanted:
            yield f"{name}: {divided.nodes[name].gpu_count} devices are planned; its GPUs give {wanted}"
    yield from _find_device_faults(whole, plan, division)
    yield from _find_slow(whole, plan, division)
    yield from _find_lost(undivided, plan, whole)


def find_layout_fault(profile: MigProfile, memory_share: float) -> str | None:
    """Returns why a GPU cannot be divided into so many devices."""
    compute, there = profile.most * profile.compute_slices, _count_compute_slices(profile, memory_share)
    if compute > there:
        return f"{profile.most} devices {profile.name} need {compute} compute slices of {there}"
    if profile.most * memory_share > 1 + SMALL_SHARE:
        return f"{profile.most} devices {profile.name} need {profile.most * memory_share:.3g} of the memory"
    return None


def _count_compute_slices(profile: MigProfile, memory_share: float) -> int:
    return COMPUTE_SLICES[round(profile.memory_slices / memory_share)]


def _find_device_faults(whole: Problem, plan: Plan, division: Mapping[str, MigLayout]) -> Iterator[str]:
    clients: Counter[tuple[str, int]] = Counter()
    for line in plan.instances:
        if line.node in division:
            if len(line.gpus) > 1:
                yield f"{line.service} takes {len(line.gpus)} GPUs together, which MIG devices cannot be"
            clients[line.place] += 1
    for job in plan.jobs:
        if job.node in division:
            yield f"job {job.job} stands on a MIG device of {job.node}, where no speed of it is known"
    for (node, index), number in clients.items():
        profile = division[node].profile
        slices = _count_compute_slices(profile, division[node].memory_share)
        most = whole.policy.clients_per_gpu * profile.compute_slices // slices
        if number > most:
            yield f"{node}/{index}: {number} processes; MPS takes {most} on a {profile.name}"


def _find_slow(whole: Problem, plan: Plan, division: Mapping[str, MigLayout]) -> Iterator[str]:
    """Yields copies on devices that are planned to be faster than the whole GPU was with as many of its SMs."""
    for line in plan.instances:
        if line.node not in division:
            continue
        layout, model = division[line.node], whole.services[line.service].model
        if (model, line.variant, layout.gpu_type) in whole.profiles:
            continue  # declared, not derived
        curve = whole.profiles[model, line.variant, layout.whole_type].latency_ms[line.batch]
        share = min(layout.profile.sm_count / _sms(layout), layout.memory_share)
        least_ms = _read(curve, line.sm_percent * share)
        if line.exec_ms < least_ms * (1 - SMALL_SHARE):
            yield f"{line.service} is planned at {line.exec_ms:.4g} ms on {line.node}, faster than {least_ms:.4g} ms"


def _sms(layout: MigLayout) -> float:
    return layout.profile.sm_count / layout.sm_share


def _read(curve: Curve, sm_percent: float) -> float:
    """Reads a curve of whole SM% between its points."""
    before = curve[0]
    for point in curve:
        if point[0] >= sm_percent:
            span = point[0] - before[0]
            part = (sm_percent - before[0]) / span if span else 0.0
            return before[1] + part * (point[1] - before[1])
        before = point
    return before[1]


def _find_lost(undivided: Plan, plan: Plan, whole: Problem) -> Iterator[str]:
    """Yields services that would lose requests and jobs that would lose their place."""
    lacked = {entry.service: entry.rate_per_second for entry in undivided.unserved}
    carried: dict[str, float] = {}
    for line in plan.instances:
        carried[line.service] = carried.get(line.service, 0.0) + line.rate_per_second
    for name, service in whole.services.items():
        rate = service.rate_per_second
        if carried.get(name, 0.0) < rate - lacked.get(name, 0.0) - SMALL_SHARE * rate:
            yield f"{name} would be served {carried.get(name, 0.0):.6g} of {rate:.6g} requests a second"
    waiting = {entry.job for entry in undivided.unplaced}
    for entry in plan.unplaced:
        if entry.job not in waiting:
            yield f"job {entry.job} would lose its place"

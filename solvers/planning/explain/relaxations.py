"""Finds the least change of each dimension that serves a service while the plan of the others stays."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, inf, log

from solvers.planning.explain.applied import RelaxedCase, find_offer, find_whole_offer
from solvers.planning.explain.meter import SpentError
from solvers.planning.explain.more_capacity import gpus, min_instances, power_budget, tenant_limit
from solvers.planning.explain.proposals import CLOSE_FACTOR, Proposal, Relaxation, confirm, least_number, propose
from solvers.planning.explain.rounding import percent, rounded_down, rounded_up

LONGEST_SLO_FACTOR = 1e3  # times the longest exec of any batch, and times the SLO: an SLO beyond it changes nothing
PERCENTILES = (99.5, *(float(whole) for whole in range(99, 49, -1)))


@dataclass(frozen=True, slots=True)
class RelaxationSearch:
    """The least change found; `is_whole` if every dimension was searched to its end."""

    least: Relaxation | None
    is_whole: bool


def least_relaxation(case: RelaxedCase) -> RelaxationSearch:
    """Finds the relaxation of least relative change, within the steps of the case's meter."""
    best: Relaxation | None = None
    try:
        for find in DIMENSIONS:
            found = find(case, best.relative if best else inf)
            if found and (best is None or found.relative < best.relative):
                best = confirm(found) or best
    except SpentError:
        return RelaxationSearch(best, False)
    return RelaxationSearch(best, True)


def rate(case: RelaxedCase, below: float) -> Proposal | None:
    """A lower rate: what can be served, and at least what is"""
    now = case.terms.service.rate_per_second
    served = sum(instance.rate_per_second for instance in case.own)
    for most in (find_offer(case).rate_per_second, served):
        value = rounded_down(most)
        if not value > 0:
            continue
        share = 1 - value / now
        words = f"ratePerSecond: {value:.10g} (now {now:.6g}, -{percent(share)})"
        found = propose("rate", words, share, case.wishing(rate_per_second=value)) if share < below else None
        if found:
            return found
    return None


def variants(case: RelaxedCase, below: float) -> Proposal | None:
    """One variant more, of the best accuracy that helps"""
    service = case.terms.service
    known = {variant.name: variant.accuracy for variant in case.problem.models[service.model]}
    lowest = min((known[name] for name in service.variants if name in known), default=None)
    for name in sorted(known, key=lambda name: (-known[name], name)):
        if name in service.variants:
            continue
        drop = 0.0 if not lowest else (lowest - known[name]) / lowest
        share = drop if drop > 0 else 1 / (1 + len(service.variants))
        words = f"variants: [{', '.join((*service.variants, name))}] (accuracy {known[name]:g} admitted)"
        wider = case.wishing(variants=(*service.variants, name))
        found = propose("variants", words, share, wider) if share < below else None
        if found:
            return found
    return None


def gpu_types(case: RelaxedCase, below: float) -> Proposal | None:
    """One GPU type more in gpuTypes"""
    service, problem = case.terms.service, case.problem
    if service.gpu_types is None or 1 / max(len(service.gpu_types), 1) >= below:
        return None
    for name in sorted({node.gpu_type for node in problem.nodes.values()} - set(service.gpu_types)):
        words = f"gpuTypes: [{', '.join((*service.gpu_types, name))}]"
        wider = case.wishing(gpu_types=(*service.gpu_types, name))
        found = propose("gpuTypes", words, 1 / max(len(service.gpu_types), 1), wider)
        if found:
            return found
    return None


def slo(case: RelaxedCase, below: float) -> Proposal | None:
    """A longer SLO"""
    now = case.terms.service.slo_ms
    longest = min(longest_slo_ms(case) / now, 1 + below)

    def longer(number: int) -> RelaxedCase:
        return case.wishing(slo_ms=rounded_up(now * CLOSE_FACTOR ** (number + 1)))

    at = least_number(
        floor(log(longest) / log(CLOSE_FACTOR)), lambda number: find_whole_offer(longer(number)) is not None
    )
    if at is None:
        return None
    slo_ms = longer(at).terms.service.slo_ms
    share = slo_ms / now - 1
    by = f"+{percent(share)}" if share < 10 else f"{share + 1:.4g} times"
    return propose("slo", f"slo.latencyMs: {slo_ms:.10g} (now {now:.6g}, {by})", share, longer(at))


def longest_slo_ms(case: RelaxedCase) -> float:
    """Returns an SLO so long that a longer SLO changes nothing."""
    execs = [
        time for key, profile in case.problem.profiles.items() if key[0] == case.terms.service.model
        for curve in profile.latency_ms.values() for _, time in curve
    ]  # fmt: skip
    return max(case.terms.service.slo_ms, *execs, 0.0) * LONGEST_SLO_FACTOR


def percentile(case: RelaxedCase, below: float) -> Proposal | None:
    """A lower percentile"""
    now = case.terms.service.percentile
    grid = [value for value in PERCENTILES if value < now and 1 - value / now < below]
    at = least_number(len(grid), lambda number: find_whole_offer(case.wishing(percentile=grid[number])) is not None)
    if at is None:
        return None
    words = f"slo.percentile: {grid[at]:g} (now {now:g})"
    return propose("percentile", words, 1 - grid[at] / now, case.wishing(percentile=grid[at]))


# Dimensions that need only known facts of the GPUs come first: what they find saves the others work.
DIMENSIONS = (rate, gpus, min_instances, tenant_limit, power_budget, variants, gpu_types, percentile, slo)

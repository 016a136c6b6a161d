"""Mixes variants of one service: a part of its rate runs on accurate variants, the rest on others, which cost less.

With two parts the mean over requests is a * share + b * (1 - share): the parts' rates alone keep the promise. More than
two accuracies never cost less by the estimate, which is a linear program with two rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor

import numpy as np

from solvers.planning.fleet.grids import Floats
from solvers.planning.parts.estimate import Estimate, estimate
from solvers.planning.problem import Instance, Problem, Service

MARGIN_SHARE = 1e-4  # of what the other part may carry: rates are added up with less care
FULL_SHARE = 1 - 1e-9  # of what whole instances carry
BETWEEN = "@"  # a service and a variant, as a service of its own


@dataclass(frozen=True, slots=True)
class Mix:
    """Two sets of variants, and the share of the rate that runs on the accurate ones."""

    accurate: tuple[str, ...]
    other: tuple[str, ...]
    share: float
    served: float = 1.0  # of the service's rate; less where the fleet cannot carry both parts

    @property
    def parts(self) -> tuple[tuple[tuple[str, ...], float], ...]:
        return (self.accurate, self.share * self.served), (self.other, (1 - self.share) * self.served)


def find_promised(problem: Problem) -> dict[str, Service]:
    """Returns the services of which a variant alone would break the promised mean accuracy."""
    return {
        name: service for name, service in sorted(problem.services.items())
        if service.mean_accuracy and min(accuracies(problem, service).values(), default=1.0) < service.mean_accuracy
    }  # fmt: skip


def accuracies(problem: Problem, service: Service) -> dict[str, float]:
    """Returns the accuracy of each variant that the service may use."""
    return {v.name: v.accuracy for v in problem.models[service.model] if v.name in service.variants}


def accurate_alone(problem: Problem, names: Sequence[str]) -> Problem:
    """Returns the problem in which these services use only variants that keep the promise by themselves."""
    changed = {}
    for name in names:
        service = problem.services[name]
        known = accuracies(problem, service)
        enough = tuple(variant for variant in service.variants if known.get(variant, 0.0) >= service.mean_accuracy)
        changed[name] = replace(service, variants=enough)
    return replace(problem, services={**problem.services, **changed})


def cheapest_mixes(problem: Problem, names: Sequence[str], *, alone: bool) -> dict[str, Mix]:
    """Returns the mixes that cost less than accurate variants alone: by shares of GPUs, or `alone` on whole ones."""
    apart = {
        _variant_name(name, variant): replace(service, name=_variant_name(name, variant), variants=(variant,))
        for name in names
        for service in (problem.services[name],)
        for variant in service.variants
    }
    known = estimate(replace(problem, services=apart, state=None, jobs={}), alone=alone)
    return {name: mix for name in names if (mix := _cheapest(problem, problem.services[name], known))}


def _cheapest(problem: Problem, service: Service, known: Estimate) -> Mix | None:
    """Returns the mix that costs least by an estimate; None where accurate variants alone cost no more."""
    nodes = list(problem.nodes.values())

    def cost(variants: Sequence[str], share: float) -> float:
        rate = service.rate_per_second * share
        return min(known.cost(_variant_name(service.name, variant), rate, nodes) for variant in variants)

    enough = accurate_alone(problem, [service.name]).services[service.name].variants
    least, found = cost(enough, 1.0) if enough else 0.0, None
    for mix in _mixes(problem, service, known):
        both = sum(cost(variants, share) for variants, share in mix.parts)
        if both < least * (1 - 1e-9):
            least, found = both, mix
    return found


def mixes_of(problem: Problem, names: Sequence[str], lines: Sequence[Instance]) -> dict[str, Mix]:
    """Returns the mixes that these instances run, of services that keep their promise by mixing."""
    found = {}
    for name in names:
        service = problem.services[name]
        known = accuracies(problem, service)
        mine = [line for line in lines if line.service == name and line.variant in known and line.rate_per_second > 0]
        accurate = [line for line in mine if known[line.variant] >= service.mean_accuracy]
        if not accurate or len(accurate) == len(mine):
            continue
        served = sum(line.rate_per_second for line in mine)
        share = sum(line.rate_per_second for line in accurate) / served
        mean = sum(line.rate_per_second * known[line.variant] for line in mine) / served
        if mean >= service.mean_accuracy * (1 - 1e-9):
            used = {line.variant for line in mine}
            over = tuple(v for v in service.variants if v in used and known[v] >= service.mean_accuracy)
            under = tuple(v for v in service.variants if v in used and known[v] < service.mean_accuracy)
            found[name] = Mix(over, under, share)
    return found


def kept_shares(problem: Problem, service: Service, lines: Sequence[Instance], rates: Floats) -> Floats:
    """Returns the share of its rate that each instance keeps: the less accurate ones lose what would break the mean."""
    known = accuracies(problem, service)
    gaps = np.array([known.get(line.variant, 0.0) for line in lines]) - service.mean_accuracy
    over, under = float((rates * gaps)[gaps > 0].sum()), -float((rates * gaps)[gaps < 0].sum())
    return np.where(gaps < 0, min(1.0, over / under) if under > 0 else 1.0, 1.0)


def _mixes(problem: Problem, service: Service, known: Estimate) -> Iterator[Mix]:
    """Yields mixes for each accuracy above the promise and each below it: with the least accurate share, and beyond.

    A larger share keeps the promise, too, and may leave the other part, or have itself, as many full instances.
    """
    value = accuracies(problem, service)
    promise, rate = service.mean_accuracy, service.rate_per_second
    for high in sorted({a for a in value.values() if a > promise}):
        over = tuple(v for v in service.variants if value.get(v, 0.0) >= high)
        for low in sorted({a for a in value.values() if a < promise}):
            under = tuple(v for v in service.variants if low <= value.get(v, 0.0) < promise)
            least = 1 - (high - promise) / (high - low) * (1 - MARGIN_SHARE)
            full = {1 - _whole(rate * (1 - least), most, floor) / rate for most in _list_served(known, service, under)}
            full |= {_whole(rate * least, most, ceil) / rate for most in _list_served(known, service, over)}
            for share in (least, *sorted(share for share in full if least < share < 1)):
                yield Mix(over, under, share)


def _whole(rate: float, most: float, rounded: Callable[[float], int]) -> float:
    """Returns the rate that fills whole instances, within what each may carry."""
    return rounded(rate / most) * most * FULL_SHARE


def _list_served(known: Estimate, service: Service, variants: Sequence[str]) -> set[float]:
    return {most for variant in variants for most in known.most_rates(_variant_name(service.name, variant))}


def _variant_name(service: str, variant: str) -> str:
    return f"{service}{BETWEEN}{variant}"

"""Rules of a service over all its instances: its rate is accounted for, and its instances are apart."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import fsum

from solvers.planning.judge.readings import Resident
from solvers.planning.judge.tolerances import RATE_SHARE, SUM_SHARE, SURVIVING_UTILIZATION
from solvers.planning.plan import Unserved
from solvers.planning.problem import Instance, Problem, Service


def sum_unserved_rate(service: Service, claims: Sequence[Unserved]) -> float:
    """Returns the unserved rate; less than 1e-5 of the rate counts as 0."""
    rate = fsum(entry.rate_per_second for entry in claims)
    return 0.0 if rate < RATE_SHARE * service.rate_per_second else rate


def unserved_told_once(
    problem: Problem, service: Service, lines: Collection[Resident], claims: Sequence[Unserved]
) -> str | None:
    """at most one entry in unserved, its rate not below 0"""
    if len(claims) > 1:
        return f"unserved lists it {len(claims)} times"
    if claims and not claims[0].rate_per_second >= 0:
        return f"its unserved rate is {claims[0].rate_per_second:g}, below 0"
    return None


def rates_add_up(
    problem: Problem, service: Service, lines: Collection[Resident], claims: Sequence[Unserved]
) -> str | None:
    """|sum of the instances' rates + unserved rate - ratePerSecond| <= 1e-5 x ratePerSecond"""
    served = fsum([line.instance.rate_per_second for line in lines])
    unserved = fsum([entry.rate_per_second for entry in claims]) if claims else 0.0
    rate = service.rate_per_second
    if abs(served + unserved - rate) <= RATE_SHARE * rate * (1 + SUM_SHARE):
        return None
    return f"{served:.8g} served and {unserved:.8g} unserved a second do not add up to the rate of {rate:.8g}"


def min_instances_run(
    problem: Problem, service: Service, lines: Collection[Resident], claims: Sequence[Unserved]
) -> str | None:
    """any instance => instances >= minInstances"""
    if not lines or len(lines) >= service.min_instances:
        return None
    return f"{len(lines)} instances, below minInstances {service.min_instances}"


def largest_carry(
    problem: Problem, service: Service, lines: Collection[Resident], claims: Sequence[Unserved]
) -> str | None:
    """each of the minInstances largest rates >= 1/2 x served rate / number of instances"""
    least = service.min_instances
    if len(lines) < max(2, least):
        return None  # another rule refuses too few; a single instance carries all
    rates = sorted([line.instance.rate_per_second for line in lines], reverse=True)
    half = fsum(rates) / len(rates) / 2
    if rates[least - 1] >= half * (1 - SUM_SHARE):
        return None
    return (
        f"the {_nth(least)} largest of its {len(rates)} instances carries {rates[least - 1]:.6g} a second,"
        f" less than half an even share, {half:.6g}"
    )


def largest_apart(
    problem: Problem, service: Service, lines: Collection[Resident], claims: Sequence[Unserved]
) -> str | None:
    """minInstances >= 2 => the minInstances largest run on as many GPUs; with spread, nodes or regions

    Where rates are equal at the edge, the plan may choose which of them count.
    """
    least = service.min_instances
    if least < 2 or len(lines) < least:
        return None
    edge = sorted((line.instance.rate_per_second for line in lines), reverse=True)[least - 1]
    rated = [(find_counted_place(problem, service, line.instance), line.instance.rate_per_second) for line in lines]
    over = [at for at, rate in rated if rate > edge * (1 + SUM_SHARE)]
    level = {at for at, rate in rated if abs(rate - edge) <= edge * SUM_SHARE}
    places = set(over)
    if len(places) == len(over) and len(places | level) >= least:
        return None
    noun = {"gpu": "GPUs", "node": "nodes", "region": "regions"}[service.availability.spread]
    return f"its {least} largest instances run on {min(least - 1, len(places | level))} {noun}, not on {least}"


def find_counted_place(problem: Problem, service: Service, instance: Instance) -> object:
    """Returns the GPU, node or region of an instance, whichever the service counts."""
    spread = service.availability.spread
    if spread == "gpu":
        return instance.place
    node = instance.node
    return problem.nodes[node].region if spread == "region" and node in problem.nodes else node


def survives_a_node(
    problem: Problem, service: Service, lines: Collection[Resident], claims: Sequence[Unserved]
) -> str | None:
    """surviveNodes 1 => for every node: sum over the other nodes of 0.95 x batch / exec >= sum of all rates

    exec is that of the plan, without the margin: what runs on the other nodes stays as it is.
    """
    if not service.availability.survive_nodes:
        return None
    served = fsum([line.instance.rate_per_second for line in lines])
    for lost in sorted({line.instance.node for line in lines}):
        left = fsum(
            SURVIVING_UTILIZATION * line.instance.batch * 1000 / line.exec_ms
            for line in lines
            if line.instance.node != lost and line.exec_ms
        )
        if left < served * (1 - SUM_SHARE):
            return (
                f"without node {lost} its other instances carry {left:.6g} of {served:.6g} a second at utilization"
                f" {SURVIVING_UTILIZATION:g}"
            )
    return None


def spot_within_share(
    problem: Problem, service: Service, lines: Collection[Resident], claims: Sequence[Unserved]
) -> str | None:
    """sum of the rates on spot nodes <= maxSpotShare x sum of all rates"""
    share = service.availability.max_spot_share
    if share >= 1:
        return None
    served = fsum([line.instance.rate_per_second for line in lines])
    on_spot = fsum(line.instance.rate_per_second for line in lines if _is_spot(problem, line.instance.node))
    if on_spot <= share * served + RATE_SHARE * served:
        return None
    return f"{on_spot:.6g} of {served:.6g} a second run on spot nodes, over maxSpotShare {share:g}"


def mean_accuracy_kept(
    problem: Problem, service: Service, lines: Collection[Resident], claims: Sequence[Unserved]
) -> str | None:
    """sum of rate x accuracy of its variant >= meanAccuracy x sum of the rates"""
    if not service.mean_accuracy or not lines:
        return None
    known = {variant.name: variant.accuracy for variant in problem.models[service.model]}
    served = fsum([line.instance.rate_per_second for line in lines])
    reached = fsum(line.instance.rate_per_second * known.get(line.instance.variant, 0.0) for line in lines)
    if reached >= service.mean_accuracy * served * (1 - SUM_SHARE):
        return None
    return f"its requests have a mean accuracy of {reached / served:.6g}, below meanAccuracy {service.mean_accuracy:g}"


def _is_spot(problem: Problem, node: str) -> bool:
    return node in problem.nodes and problem.nodes[node].purchase == "spot"


def _nth(number: int) -> str:
    return f"{number}{'st' if number == 1 else 'nd' if number == 2 else 'rd' if number == 3 else 'th'}"


RULES = (
    unserved_told_once,
    rates_add_up,
    min_instances_run,
    largest_carry,
    largest_apart,
    survives_a_node,
    spot_within_share,
    mean_accuracy_kept,
)

# A quick step may break these to serve more; the next whole plan keeps them again.
AVAILABILITY_RULES = frozenset({"largest_apart", "survives_a_node", "spot_within_share"})
LATE_RULES = frozenset({"slo_holds", "utilization_holds"})  # an instance that breaks one answers too late


def unserved_exists(problem: Problem, name: str, claims: Sequence[Unserved]) -> str | None:
    """unserved names services"""
    return f"unserved names {name}, but there is no such service" if claims and name not in problem.services else None


def slo_holds(line: Resident, is_kept: bool) -> str | None:
    """the verdict on an SLO without simulation"""
    return None if is_kept else f"at {line.instance.rate_per_second:.6g} a second its latency exceeds the SLO"

"""Plays requests on a fleet of language models: under the control plane, or under plans that a caller makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.manifests.offline import DeclaredFiles
from lab.rag.promises import PromiseRecord, PromiseShares
from simulation.clock import Clock
from simulation.fleet.fleet import SimulatedFleet
from simulation.fleet.plan_execution import carry_out
from simulation.fleet_truth import FleetTruth
from simulation.limits import WARM_UP_MINUTES, WORK
from simulation.measure.requests import make_shapes
from simulation.measure.run import set_auto
from simulation.run import open_simulation
from simulation.serving.arrivals import PlayedRequests
from solvers.planning.plan import Plan

TICK_SECONDS = 10.0  # far less than a copy of a language model takes to start
REPLAN_SECONDS = 30.0  # as a policy has it unless it says otherwise
OBSERVED_SECONDS = 60.0  # over which an observed rate is counted
REPORT_SECONDS = 3600.0
# Returns a plan for the rates observed last, which are empty at first; None changes nothing.
MakePlan = Callable[[Mapping[str, float]], Plan | None]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ReplayOrder:
    """The requests to play, by service, and for how long. Figures count from the end of the warm-up on."""

    requests: Mapping[str, PlayedRequests]
    seconds: float
    seed: int
    work: int = WORK


def replay_online(
    database_url: str, world: DeclaredFiles, order: ReplayOrder, say: Say = lambda line: None
) -> dict[str, PromiseShares]:
    """Returns what requests get while the control plane runs the fleet, on an empty, migrated database."""
    world, record, reported = set_auto(world), PromiseRecord(), 0.0
    with open_simulation(database_url, world, seed=order.seed, work=order.work) as simulation:
        fleet = simulation.fleet
        fleet.shapes = make_shapes(order.requests, fleet.declared)
        fleet.arrivals.trace, fleet.patient = order.requests, True
        for now in simulation.seconds(order.seconds, TICK_SECONDS):
            if now >= 60 * WARM_UP_MINUTES:
                fleet.patient = False
                record.look(fleet)
            if now >= reported + REPORT_SECONDS:
                reported = now
                say(f"{now / 3600:.0f} of {order.seconds / 3600:g} hours")
        return record.shares(fleet)


def replay_planned(
    truth: FleetTruth, order: ReplayOrder, make_plan: MakePlan, tick_seconds: float = TICK_SECONDS
) -> dict[str, PromiseShares]:
    """Returns what requests get from the plans of a caller, asked again every REPLAN_SECONDS.

    A copy that starts serves from the tick on in which it is ready; a plan that never changes needs no shorter ticks.
    """
    clock, record = Clock(), PromiseRecord()
    fleet = SimulatedFleet(truth, clock, make_shapes(order.requests, _declared(truth)), order.seed, patient=True)
    fleet.arrivals.trace = order.requests
    generation, due = 0, 0.0
    while clock.seconds < order.seconds - 1e-9:
        if clock.seconds >= due:
            due += REPLAN_SECONDS
            plan = make_plan(_observed(order, clock.seconds))
            if plan is not None:
                generation += 1
                carry_out(fleet, plan, generation)
        clock.advance(min(tick_seconds, order.seconds - clock.seconds))
        fleet.tick()
        if clock.seconds >= 60 * WARM_UP_MINUTES:
            fleet.patient = False
            record.look(fleet)
    return record.shares(fleet)


def _declared(truth: FleetTruth) -> dict[str, float]:
    return {service.name: service.rate_per_second for service in truth.problem.services.values()}


def _observed(order: ReplayOrder, now: float) -> dict[str, float]:
    if not now:
        return {}
    since = max(0.0, now - OBSERVED_SECONDS)
    return {name: len(requests.between(since, now).times) / (now - since) for name, requests in order.requests.items()}

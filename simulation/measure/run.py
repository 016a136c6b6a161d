"""Runs a fleet under a load in virtual time, and measures what it costs and what it could cost."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.control.decide.last_question import CycleResult
from app.control.domain.times import cycle_seconds, start_seconds
from app.control.formulate.question import Question
from app.control.rent.rule import AccountRule, RentRule
from app.garbage import settle_for
from app.manifests.model import JSON, Key, Kind, Manifest
from app.manifests.offline import DeclaredFiles
from app.store.plans import plan_reads
from simulation.fleet.history import CHANGES
from simulation.limits import POISSON_CV, WARM_UP_MINUTES, WORK
from simulation.measure.figures import (
    CostMoment,
    RequestCounts,
    RunSamples,
    cost_figures,
    request_figures,
)
from simulation.measure.fresh import serves_all
from simulation.measure.held import held_per_hour, is_waiting, price_planned
from simulation.measure.jobs import job_figures
from simulation.measure.peers import plan_static_peak, scale_by_hpa
from simulation.measure.remembering_solver import RememberingSolver
from simulation.measure.rented import RentedUse
from simulation.measure.sampler import FreshSampler, SampleOrder
from simulation.measure.working import FleetUse
from simulation.run import Simulation, open_simulation
from simulation.serving.arrivals import PlayedRequests
from simulation.serving.totals import Total
from simulation.shapes import NOISE_SECONDS, Shape
from simulation.spot import ReclaimRounds
from simulation.storms import StormOrder, StormRounds
from simulation.truths import PLANNER, TruthOrder
from simulation.world import set_policy
from solvers.planning.plan import Plan

TICK_SECONDS = 2.0
FIRST_SAMPLE_SECONDS, SAMPLE_SECONDS = 60.0 * WARM_UP_MINUTES, 600.0
VIEW_SECONDS = 10.0  # between two reads of the plan in force
HINDSIGHT_STEP_SECONDS = 5.0
MOST_PLANS = 1_000_000
OF_THE_RUN_ALONE = ("heldPerHour", "plannedPerHour", "waitingMinutes")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class SimulationOrder:
    """The fleet to simulate, its load, and for how long and with how much work."""

    world: DeclaredFiles
    shapes: Mapping[str, Shape]
    hours: float
    seed: int
    work: int = WORK
    tick_seconds: float = TICK_SECONDS
    reclaim_every_seconds: float | None = None  # a spot node
    storms: StormOrder | None = None
    truth: TruthOrder = PLANNER
    is_compared: bool = True  # with fresh plans and peers, which take most of the time
    planner: str = ""  # instead of the policy's
    requests: Mapping[str, PlayedRequests] | None = None  # a trace, by service
    gap_cv: float = POISSON_CV  # how the gaps between requests vary; above 1 they come in bursts
    make_rent_rule: Callable[[], RentRule] = AccountRule  # of nodes of pools


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """The figures, and the samples that they are made from."""

    figures: Mapping[str, Any]
    samples: RunSamples


def set_auto(world: DeclaredFiles) -> DeclaredFiles:
    """Returns the world with every decision carried out: mode auto for the policy and for every service."""
    manifests: dict[Key, Manifest] = {}
    for key, manifest in world.manifests.items():
        spec: dict[str, JSON] = dict(manifest.spec)
        if key.kind is Kind.STATE:
            continue
        if key.kind is Kind.SERVICE:
            spec.pop("mode", None)
        manifests[key] = replace(manifest, spec=spec)
    return set_policy(DeclaredFiles(manifests), {"mode": "auto"})


def simulate(database_url: str, order: SimulationOrder, say: Say = lambda line: None) -> SimulationReport:
    """Runs the order on an empty, migrated database. Everything except how long it took depends on the order alone."""
    began, began_cpu = time.monotonic(), time.process_time()
    physics = order.truth.physics()
    if order.truth.profiles != "declared":
        say("measuring profiles")
    world = set_auto(order.truth.make_believed(order.world, physics))
    if order.planner:
        world = set_policy(world, {"planner": order.planner})
    with (
        settle_for(),
        FreshSampler(order.work, order.seed, len(os.sched_getaffinity(0))) as sampler,
        open_simulation(
            database_url,
            world,
            order.shapes,
            seed=order.seed,
            work=order.work,
            physics=physics,
            make_rent_rule=order.make_rent_rule,
        ) as simulation,
    ):
        simulation.fleet.arrivals.trace = order.requests
        simulation.fleet.arrivals.gap_cv = order.gap_cv
        simulation.fleet.patient = True  # while the first copies come up
        run = _MeasuredRun(simulation, sampler, order, say)
        run.run()
        figures = run.figures()
        served = sum(counts.ended for counts in run.counts().values())
    if physics is not None:
        figures["truth"] = {"name": order.truth.name, "seed": order.truth.seed, "profiles": order.truth.profiles}
    figures["seconds"] = round(time.monotonic() - began, 1)
    figures["requestsPerSecondPerCore"] = round(served / max(1e-9, time.process_time() - began_cpu))
    return SimulationReport(figures, run.samples)


class _MeasuredRun:
    """One run: takes each measurement when it is due, and keeps the results."""

    def __init__(self, simulation: Simulation, sampler: FreshSampler, order: SimulationOrder, say: Say) -> None:
        self.simulation, self.order, self._sampler, self._say = simulation, order, sampler, say
        self.solver = RememberingSolver(simulation.planner.solver)
        simulation.planner.solver = self.solver
        self.samples = RunSamples(FIRST_SAMPLE_SECONDS)
        self.unserved_while_complete_known = 0
        self._question: Question | None = None  # of the last cycle
        self._found: list[Plan] = []  # since the last sample
        self._cycles = 0
        self._use: FleetUse | None = None  # from the first measurement on
        self._rented = RentedUse(simulation, FIRST_SAMPLE_SECONDS) if order.world.of(Kind.POOL) else None
        every = order.reclaim_every_seconds
        self._reclaims = ReclaimRounds(simulation, every, order.seed) if every else None
        self._storms = StormRounds(simulation, order.storms, order.seed) if order.storms else None

    def run(self) -> None:
        until = self.order.hours * 3600
        view_at, sample_at, hour_at = FIRST_SAMPLE_SECONDS, FIRST_SAMPLE_SECONDS, 3600.0
        planned, waiting = 0.0, False
        for now in self._ticks(until):
            self._look_at_cycle()
            if now < FIRST_SAMPLE_SECONDS:
                continue
            self.simulation.fleet.patient = False  # what is not served by now counts
            if self.order.is_compared and now >= sample_at:
                sample_at += SAMPLE_SECONDS
                self._sample(now)
            self._use = self._use or FleetUse(self.simulation.fleet)
            if now >= view_at:
                view_at += VIEW_SECONDS
                self._use.look()
                if self._rented:
                    self._rented.look()
                view = self.simulation.planner.store.view()
                planned = price_planned(self.simulation.fleet.truth.problem, view)
                waiting = is_waiting(view)
            self._note_costs(now, planned, waiting)
            if now >= hour_at or not self.samples.counts:
                hour_at += 3600.0 if now >= hour_at else 0.0
                self.samples.counts.append((now, self.counts()))
        self.samples.ended = self.simulation.clock.seconds
        if self.samples.counts[-1][0] < self.samples.ended:
            self.samples.counts.append((self.samples.ended, self.counts()))
        if self.order.is_compared:
            self._say("the rest of the fresh plans")
            self.samples.fresh = self._sampler.finish()

    def figures(self) -> dict[str, Any]:
        history, began = self.simulation.history, self.samples.began
        kinds = history.kinds(began)
        states = Counter(self._plan_states())
        costs = cost_figures(self.samples)
        return {
            "hours": self.order.hours,
            "planner": self.simulation.fleet.truth.problem.policy.planner,
            **(costs if self.order.is_compared else {name: costs[name] for name in OF_THE_RUN_ALONE}),
            **request_figures(self.samples),
            "plans": states.total(),
            "changes": {name: kinds[name] for name in CHANGES},
            "rollouts": {name: states[name] for name in ("done", "stopped", "superseded")},
            "unservedWhileCompleteKnown": self.unserved_while_complete_known,
            **(self._use.figures() if self._use else {}),
            "jobs": job_figures(self.simulation),
            **({"reclaims": self._reclaims.figures()} if self._reclaims else {}),
            **({"storms": self._storms.figures(self._promised())} if self._storms else {}),
            **({"pools": self._rented.figures()} if self._rented else {}),
            **({"peers": self.peers()} if self.order.is_compared else {}),
        }

    def peers(self) -> dict[str, dict[str, float]]:
        """Returns what other planners would have cost on the same load, in the time that was measured."""
        fleet, began, until = self.simulation.fleet, self.samples.began, self.samples.ended
        self._say("a static plan for the peak, and autoscaling at 80 %")
        problem, starts = fleet.truth.problem, start_seconds(self.simulation.planner.store.world())
        count = max(1, int((until - began) // NOISE_SECONDS))
        moments = [began + NOISE_SECONDS * number for number in range(count)]
        static = plan_static_peak(problem, fleet.rate, moments, self.order.work, self.order.seed)
        return {
            "staticPeak": static.figures(),
            "hpa80": scale_by_hpa(problem, fleet.rate, starts, began, until).figures(),
        }

    def counts(self) -> dict[str, RequestCounts]:
        return {name: _counts(total) for name, total in self.simulation.fleet.services.items()}

    def _ticks(self, until: float) -> Iterator[float]:
        reported = 0  # tens of minutes
        for now in self.simulation.seconds(until, self.order.tick_seconds):
            for rounds in (self._reclaims, self._storms):
                if rounds:
                    rounds.tick()
            yield now
            if int(now // 600) > reported:
                reported = int(now // 600)
                self._say(f"{now / 60:.0f} of {until / 60:.0f} minutes")

    def _promised(self) -> dict[str, float]:
        """Returns the share of requests that each service promises to answer in time."""
        services = self.simulation.fleet.truth.problem.services.values()
        return {service.name: service.percentile / 100 for service in services}

    def _look_at_cycle(self) -> None:
        """Keeps the question of the last cycle and the plans it found, if a cycle ran in this tick."""
        plans = self.solver.take()
        self._found += plans
        found = self.simulation.last
        if self.simulation.cycles == self._cycles or found is None or found.question is None:
            return
        self._cycles, self._question = self.simulation.cycles, found.question
        if self.simulation.clock.seconds >= self.samples.began and _serves_less_than_known_plan(found, plans):
            self.unserved_while_complete_known += 1

    def _sample(self, now: float) -> None:
        """Orders a search for what the fleet could cost at this moment."""
        question = self._question
        if question is None:
            return
        rates = self._rates_to_come(question, now)
        self._sampler.order(SampleOrder(now, question.problem, rates, question.plan_in_force, self._found))
        self._found = []

    def _rates_to_come(self, question: Question, now: float) -> dict[str, float]:
        """Returns each service's largest real rate until a copy that is decided now could serve."""
        declared, fleet = self.simulation.planner.store.world(), self.simulation.fleet
        every, starts = cycle_seconds(declared), start_seconds(declared)
        found = {}
        for name in question.problem.services:
            steps = int((every + starts[name]) // HINDSIGHT_STEP_SECONDS) + 1
            found[name] = max(fleet.rate(name, now + HINDSIGHT_STEP_SECONDS * step) for step in range(steps))
        return {name: max(rate, 0.01) for name, rate in found.items()}

    def _note_costs(self, now: float, planned: float, waiting: bool) -> None:
        costs = self.samples.costs
        moment = CostMoment(now, round(held_per_hour(self.simulation.fleet), 9), round(planned, 9), waiting)
        if not costs or replace(costs[-1], at=now) != moment:
            costs.append(moment)

    def _plan_states(self) -> list[str]:
        """Returns the state of each plan that was recorded since the measurement began."""
        since = self.simulation.clock.began.timestamp() + self.samples.began
        rows = self.simulation.database.read(lambda connection: plan_reads.page(connection, 2**62, MOST_PLANS))
        return [str(row["state"]) for row in rows if row["at"].timestamp() >= since]


def _serves_less_than_known_plan(found: CycleResult, plans: Sequence[Plan]) -> bool:
    """Returns whether the cycle recorded a plan with unserved load although it knew a right one that serves all."""
    if not found.generation or not found.decision or not found.decision.plan.unserved or not found.question:
        return False
    problem = found.question.problem
    return not found.question.falls_short or any(serves_all(problem, plan) for plan in plans)


def _counts(total: Total) -> RequestCounts:
    shed = total.turned_away + total.refused
    return RequestCounts(
        total.answered + total.errors, total.within, shed, total.answered, total.accuracy_sum
    )  # fmt: skip

"""Lets GPUs of a simulated fleet turn slower than their profiles, and measures how soon plans keep their SLOs again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from math import log
from statistics import fmean
from typing import Any, TypeAlias

from app.control.domain.corrected import factor_at
from app.control.domain.snapshot import Correction, LatencyFactor
from app.control.observe.drift.correct import ProfileCorrection, ProfileEvidence
from app.control.observe.drift.drift import CorrectionLaw, Drift
from app.control.observe.drift.tuning import DriftTuning
from app.control.observe.listener import ReportListener
from app.manifests.offline import DeclaredFiles
from simulation.fleet.history import Mark, count_attained_shares
from simulation.fleet_truth import FleetTruth, SimulatedResident
from simulation.measure.held import held_per_hour
from simulation.measure.run import set_auto
from simulation.run import Simulation, open_simulation
from simulation.shapes import noisy, steady
from solvers.planning.problem import ProfileKey

TICK_SECONDS = 2.0
WINDOW_SECONDS = 120.0  # over which a service keeps its SLO or not
LAST_SECONDS = 1800.0  # of the run, in which everything should have settled
NOISE_SHARE = 0.02  # of rates
TURN_SHARE = 0.02  # a factor that goes back by more has turned

TruthFactor: TypeAlias = Callable[[ProfileKey, float], float]  # profile, SM% -> real over declared time


@dataclass(frozen=True)
class SlowedTruth(FleetTruth):
    """A truth in which batches take longer, by profile and share of SMs."""

    slower: TruthFactor = lambda key, sm_percent: 1.0

    def exec_ms(
        self,
        key: ProfileKey,
        batch: float,
        sm_percent: float,
        neighbours: Sequence[SimulatedResident],
        clock_mhz: float = 0.0,
    ) -> float:
        return super().exec_ms(key, batch, sm_percent, neighbours, clock_mhz) * self.slower(key, sm_percent)


@dataclass(frozen=True, slots=True)
class DriftOrder:
    """A fleet, how it turns slower after the first minutes, and for how long it is watched then."""

    world: DeclaredFiles
    choose: Callable[[Simulation], TruthFactor]  # from what runs when it turns
    before_seconds: float
    after_seconds: float
    seed: int
    work: int = 24


@dataclass(slots=True)
class WatchedLaw:
    """A law of correction, and every step that it took."""

    law: CorrectionLaw
    steps: list[tuple[str, Correction]]
    known: dict[str, Correction]

    def __call__(
        self, before: ProfileCorrection, evidence: ProfileEvidence, now: datetime, settings: DriftTuning
    ) -> ProfileCorrection:
        after = self.law(before, evidence, now, settings)
        if after.correction != before.correction:
            self.steps.append((after.key, after.correction))
            self.known[after.key] = after.correction
        return after


def run_drift(database_url: str, order: DriftOrder, law: CorrectionLaw) -> dict[str, Any]:
    """Runs the order on an empty, migrated database, and returns its figures. All depends on the order alone."""
    watched = WatchedLaw(law, [], {})
    names = [f"{key.tenant}/{key.name}" for key in order.world.manifests if key.kind == "Service"]
    shapes = {name: noisy(steady, NOISE_SHARE, f"{order.seed} {name}") for name in names}
    world = set_auto(order.world)
    with open_simulation(database_url, world, shapes, seed=order.seed, work=order.work) as simulation:
        simulation.planner.loads = ReportListener(simulation.database, lambda: Drift(law=watched))
        simulation.fleet.patient = True
        simulation.advance(order.before_seconds / 2, TICK_SECONDS)
        simulation.fleet.patient = False
        simulation.advance(order.before_seconds / 2, TICK_SECONDS)
        steps_before = len(watched.steps)
        began = simulation.history.mark(simulation.fleet)
        slower = order.choose(simulation)
        truth = simulation.fleet.truth
        known = {field.name: getattr(truth, field.name) for field in fields(FleetTruth)}
        simulation.fleet.follow(SlowedTruth(**known, slower=slower))
        held = [held_per_hour(simulation.fleet)]
        held.extend(held_per_hour(simulation.fleet) for _ in simulation.seconds(order.after_seconds, TICK_SECONDS))
        simulation.history.mark(simulation.fleet)
        figures = _attainment(simulation, began.at) | {
            "held_before": held[0],
            "held_mean": fmean(held),
            "held_last": held[-1],
            "false_steps": steps_before,
            "steps": len(watched.steps) - steps_before,
            "turns": _turns(watched.steps[steps_before:]),
            "changes": len(simulation.history.since(began.at)),
            "changes_last": len(simulation.history.since(simulation.clock.seconds - LAST_SECONDS)),
        }
        return figures | _errors(simulation, slower, watched.known)


def _attainment(simulation: Simulation, since: float) -> dict[str, float]:
    """Returns until when some service missed its SLO, for how many minutes of services, and how many late answers."""
    marks = simulation.history.marks
    percentiles = {name: service.percentile / 100 for name, service in simulation.fleet.truth.problem.services.items()}
    until, missed = 0.0, 0.0
    for first, last in _windows([mark for mark in marks if mark.at >= since]):
        shares = count_attained_shares(first, last)
        short = [name for name, share in shares.items() if share < percentiles[name]]
        missed += len(short) * (last.at - first.at) / 60
        until = max(until, last.at - since) if short else until
    before = sum(
        share < percentiles[name]
        for first, last in _windows([mark for mark in marks if since / 2 <= mark.at <= since])
        for name, share in count_attained_shares(first, last).items()
    )
    began = next(mark for mark in marks if mark.at >= since)
    late = sum(_late(marks[-1], name) - _late(began, name) for name in percentiles)
    return {"missed_before": before, "slo_again_seconds": until, "missed_minutes": missed, "late": late}


def _late(mark: Mark, service: str) -> int:
    """Returns how many of a service's requests had missed its SLO by then, failed ones included."""
    answered, within, failed = mark.services[service]
    return answered + failed - within


def _windows(marks: Sequence[Mark]) -> Iterator[tuple[Mark, Mark]]:
    """Yields the beginnings and ends of windows in a row."""
    first = marks[0] if marks else None
    for mark in marks:
        if first and mark.at >= first.at + WINDOW_SECONDS - 1e-6:
            yield first, mark
            first = mark


def _turns(steps: Sequence[tuple[str, Correction]]) -> int:
    """Counts the steps that took some factor the other way than its last step."""
    last: dict[tuple[str, int, int], tuple[float, float]] = {}  # factor, and how it had moved
    turns = 0
    for key, correction in steps:
        has_turned = False
        for point in correction.latency or (LatencyFactor(0, 100, 1.0),):
            place = (key, point.batch, point.sm_percent)
            factor, before = last.get(place, (1.0, 0.0))
            moved = point.factor - factor
            if abs(moved) > TURN_SHARE:
                has_turned = has_turned or moved * before < 0
                last[place] = (point.factor, moved)
        turns += has_turned
    return turns


def _errors(simulation: Simulation, slower: TruthFactor, known: Mapping[str, Correction]) -> dict[str, float]:
    """Returns the errors of beliefs in percent: the largest where copies run, and the mean where nothing is slower."""
    running, kept = [0.0], [0.0]
    places = {
        (node.key(copy), int(copy.wanted.batch.planned) if copy.wanted.batch else 1, copy.wanted.sm_percent)
        for node in simulation.fleet.nodes.values()
        for copy in node.serving()
    }
    for key, batch, sm_percent in places:
        believed = factor_at(known.get("/".join(key), Correction()), batch, sm_percent)
        running.append(abs(log(believed / slower(key, sm_percent))))
    for key, profile in simulation.fleet.truth.problem.profiles.items():
        for batch, curve in profile.latency_ms.items():
            for sm_percent, _ in curve:
                if slower(key, sm_percent) == 1.0:
                    kept.append(abs(log(factor_at(known.get("/".join(key), Correction()), batch, sm_percent))))
    return {"error_running_percent": 100 * max(running), "error_unchanged_percent": 100 * fmean(kept)}

"""Plans a fleet as OLTunes does: the idlest GPU is filled with tasks that prefer its type and suit each other.

A task is an instance that a service lacks. The latency-critical queue goes first, then the throughput-oriented one,
each by urgency (the SLO over the latency) and shortest first (O3); jobs follow, in the order of their own queue. In the
paper a task without a place waits until others end. Instances of services do not end, so feedback is ours: a task that
found no such GPU takes any with room. GPUs where all suit each other come first, then the best candidate, then the
highest affinity. Instances stop as Mudi's do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from solvers.interference.affinity import THRESHOLD_AFFINITY
from solvers.oltunes.fleet.affinities import FleetAffinities
from solvers.oltunes.fleet.candidates import TunedRecord, best_records, score_candidates
from solvers.planning.fleet.offers import FleetShape, GpuPool
from solvers.planning.growing import GrowingFleet, is_critical
from solvers.planning.planner_draft import PlannerBudget, PlannerDraft
from solvers.planning.problem import Instance, Knowledge, Place, Problem, Service

MOST_TASKS = 4  # batch_size_max
AVAILABLE_PERCENT = 20  # of a GPU's SMs in use, at most, for tasks to be gathered for it
OVERLOADED_PERCENT = 90  # of the SMs: more draws power sharply (section 2.4)
MOST_LOSS_SHARE = 0.04  # of accuracy
WAITS = "waits: no GPU with room suits it, and its variants' mean accuracy holds"


def plan(problem: Problem, knowledge: Knowledge, budget: PlannerBudget) -> PlannerDraft:
    """Returns OLTunes' next plan; it depends on what runs and on the rates alone."""
    fleet = _TunedFleet(problem)
    fleet.stop_spare()
    while fleet.gather() or fleet.feed_back():  # each places a task or more, so that it ends
        fleet.grown.count()
    method = f"idlest GPU first, affinity, {fleet.gathered} gathered, {fleet.fed_back} by feedback, {fleet.tuned} tuned"
    return fleet.grown.draft(method, WAITS)


@dataclass(frozen=True, slots=True, eq=False)
class AdmittedRecords:
    """The records of a service that keep its accuracy."""

    ranked: tuple[tuple[int, TunedRecord], ...]  # with the number among all of its records, the best first
    best: Mapping[GpuPool, Sequence[TunedRecord]]  # D (5), (6)

    @classmethod
    def of(cls, ranked: tuple[tuple[int, TunedRecord], ...]) -> AdmittedRecords:
        best: dict[GpuPool, list[TunedRecord]] = defaultdict(list)
        for record in best_records([record for _, record in ranked]):
            best[record.shape.pool].append(record)
        return cls(ranked, best)


@dataclass(frozen=True, slots=True)
class AccuracyRule:
    """What another instance of a service must be, to keep its mean accuracy (O6).

    The mean is over the rates that instances can carry. The loss is from the best variant that the service admits.
    """

    accuracies: Mapping[str, float]  # of its variants
    least: float
    surplus: float  # of the instances that are there, above the least

    @classmethod
    def of(cls, fleet: GrowingFleet, service: Service) -> AccuracyRule:
        accuracies = {variant: fleet.accuracy(service, variant) for variant in service.variants}
        least = max(service.mean_accuracy, (1 - MOST_LOSS_SHARE) * max(accuracies.values(), default=0.0))
        own = [(fleet.rates[seat.id], fleet.accuracy(service, seat.variant)) for seat in fleet.of(service.name)]
        return cls(accuracies, least, sum(rate * (accuracy - least) for rate, accuracy in own))

    def admits(self, shape: FleetShape) -> bool:
        return self.surplus + shape.rate_per_second * (self.accuracies[shape.variant] - self.least) >= -1e-9


class _TunedFleet:
    """The fleet with the records of each service."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.grown = GrowingFleet(problem)
        self.gathered = self.fed_back = self.tuned = 0
        places = self.grown.rooms.places
        self._affinities = FleetAffinities(problem, len(places))
        self._order = np.argsort(sorted(range(len(places)), key=lambda number: places[number]))  # of places by name
        load = sum(seat.sm_percent for seat in self.grown.seats) / max(1, 100 * len(places))
        self.records: Mapping[str, Sequence[TunedRecord]] = {
            name: score_candidates(problem, service, self.grown.shapes[name], self.grown.short(service), min(1.0, load))
            for name, service in problem.services.items()
        }
        self._mean_ms = {
            name: sum(record.shape.exec_ms for record in records) / max(1, len(records))
            for name, records in self.records.items()
        }
        self._known: dict[str, tuple[int, AdmittedRecords]] = {}  # with the turn of the service
        self._changed: set[Place] = set()  # GPUs that have got an instance since they were last gathered for
        self._tried: dict[str, AdmittedRecords] = {}  # with which a task found no GPU when they were last gathered for
        self._stuck: dict[str, set[int]] = defaultdict(set)  # records for which no GPU has room, nor will have

    def stop_spare(self) -> None:
        """Stops what is not needed, the instances of the lowest scores first."""
        scores = {
            (name, record.shape.pool.gpu_type, record.shape.variant, record.shape.batch): record.score
            for name, records in self.records.items()
            for record in reversed(records)  # of equal shapes the best counts
        }

        def worth(seat: Instance) -> float:
            key = (seat.service, self.problem.nodes[seat.node].gpu_type, seat.variant, seat.batch)
            return scores.get(key, 0.0)

        self.grown.stop_spare(worth)
        for place in {seat.place for seat in self.grown.seats}:
            self._note(place)

    def gather(self) -> bool:
        """Fills each GPU that is available, the idlest first, by Algorithm 2; returns whether anything was placed.

        A GPU is offered again to a task that it did not suit only once either of them has changed.
        """
        tasks, rooms = self._queue(), self.grown.rooms
        changed, self._changed = self._changed, set()
        admitted = {task.name: self._admit(task) for task in tasks}
        fresh = {name for name, records in admitted.items() if self._tried.get(name) is not records}
        grown = set[str]()
        available = np.flatnonzero(rooms.free_sm >= 100 - AVAILABLE_PERCENT)
        idlest_first = np.lexsort((self._order[available], -rooms.free_sm[available]))
        for place in [rooms.places[number] for number in available[idlest_first].tolist()]:
            if not fresh and place not in changed:
                continue
            placed = []
            for service in tasks:
                if service.name not in fresh and place not in changed:
                    continue
                if self.grown.is_lacking(service) and len(self.grown.at(place)) < MOST_TASKS:
                    seat = self._fit(service, place)
                    placed += [seat] if seat else []
            grown |= {seat.service for seat in placed}
            fresh |= grown
            self._tune(placed)
            self.gathered += len(placed)
        self._tried = {name: records for name, records in admitted.items() if name not in grown}
        return bool(grown)

    def feed_back(self) -> bool:
        """Places the first task that was not gathered for any GPU, if possible where all suit each other."""
        for service in self._queue():
            if chosen := self._find_room(service):
                self._place(service, *chosen)
                self.fed_back += 1
                return True
        return False

    def _find_room(self, service: Service) -> tuple[FleetShape, Place] | None:
        """Returns the best record for which a GPU has room: of those where all suit each other, if there are any."""
        rooms, stuck = self.grown.rooms, self._stuck[service.name]
        other: tuple[FleetShape, Place] | None = None
        for number, record in self._admit(service).ranked:
            if number in stuck:
                continue
            shape = record.shape
            able = rooms.numbers_for(shape, service)
            if not len(able):
                stuck.add(number)
                continue
            means = self._affinities.find_means(service, shape, able)
            best = int(np.lexsort((self._order[able], -rooms.free_sm[able], -means))[0])
            if means[best] >= THRESHOLD_AFFINITY:
                return shape, rooms.places[int(able[best])]
            other = other or (shape, rooms.places[int(able[best])])
        return other

    def _place(self, service: Service, shape: FleetShape, place: Place) -> Instance:
        if service.min_instances > 1:  # once they are on so many GPUs, others may share one with them
            self._stuck.pop(service.name, None)
        seat = self.grown.add(service, shape, place)
        self._changed.add(place)
        self._note(place)
        return seat

    def _note(self, place: Place) -> None:
        self._affinities.note(self.grown.rooms.numbers[place], self.grown.at(place))

    def _queue(self) -> list[Service]:
        """Returns the services that lack an instance in the order of both queues."""
        lacking = [service for service in self.problem.services.values() if self.grown.is_lacking(service)]

        def urgency(service: Service) -> tuple[bool, float, float, str]:
            latency_ms = self._mean_ms[service.name]
            return not is_critical(service), service.slo_ms / max(latency_ms, 1e-9), latency_ms, service.name

        return sorted(lacking, key=urgency)

    def _admit(self, service: Service) -> AdmittedRecords:
        """Returns the records that keep the service's accuracy, the same object while they are the same."""
        turn, known = self.grown.turns[service.name], self._known.get(service.name)
        if known and known[0] == turn:
            return known[1]
        keeps = AccuracyRule.of(self.grown, service)
        ranked = tuple(entry for entry in enumerate(self.records[service.name]) if keeps.admits(entry[1].shape))
        found = known[1] if known and known[1].ranked == ranked else AdmittedRecords.of(ranked)
        self._known[service.name] = turn, found
        return found

    def _fit(self, service: Service, place: Place) -> Instance | None:
        """Places the task on this GPU if it is of the two best types, and all there suit each other (fitForBatch)."""
        rooms = self.grown.rooms
        for record in self._admit(service).best.get(rooms.pool_of(place), ()):
            shape = record.shape
            if self.grown.at(place):
                is_calm = rooms.used_percent(place) + shape.sm_percent <= OVERLOADED_PERCENT
                number = np.array([rooms.numbers[place]])
                if not is_calm or self._affinities.find_means(service, shape, number)[0] < THRESHOLD_AFFINITY:
                    continue
            if rooms.can_hold(place, shape, service):
                return self._place(service, shape, place)
        return None

    def _tune(self, placed: Sequence[Instance]) -> None:
        """Raises the batch of one task that leaves memory unused, throughput-oriented work first (O5)."""
        services = self.problem.services
        for seat in sorted(placed, key=lambda line: (is_critical(services[line.service]), line.id)):
            shapes, rooms = [record.shape for record in self.records[seat.service]], self.grown.rooms
            pool = rooms.pool_of(seat.place)
            alike = [
                shape
                for shape in shapes
                if (shape.pool, shape.variant, shape.sm_percent) == (pool, seat.variant, seat.sm_percent)
                and rooms.can_hold_memory(seat.place, seat.memory_gib, shape.memory_gib)
            ]
            now = next((shape for shape in alike if shape.batch == seat.batch), None)
            if now is None:
                continue
            larger = [shape for shape in alike if shape.batch > seat.batch]
            if is_critical(services[seat.service]):
                better = [shape for shape in larger if shape.exec_ms < now.exec_ms]
            else:
                better = [shape for shape in larger if shape.rate_per_second > now.rate_per_second]
            if better:
                best = max(better, key=lambda shape: (shape.rate_per_second, -shape.batch))
                if best.memory_gib < seat.memory_gib:  # what it leaves is room that was not there
                    self._stuck.clear()
                self.grown.retune(seat, best)
                self._note(seat.place)
                self.tuned += 1
                return

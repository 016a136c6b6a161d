"""Plans a fleet as OLTunes does: the idlest GPU is filled with tasks that prefer its type and suit each other.

A task is an instance that a service lacks. The latency-critical queue goes first, then the throughput-oriented one,
each by urgency (the SLO over the latency) and shortest first (O3); jobs follow, in the order of their own queue. In the
paper a task without a place waits until others end. Instances of services do not end, so feedback is ours: a task that
found no such GPU takes any with room. GPUs where all suit each other come first, then the best candidate, then the
highest affinity. Instances stop as Mudi's do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from solvers.interference.affinity import THRESHOLD_AFFINITY, compute_to_memory, variant_affinity, workload_affinity
from solvers.oltunes.fleet.candidates import TunedRecord, best_records, scored
from solvers.planning.growing import GrowingFleet, is_critical
from solvers.planning.planner_draft import PlannerBudget, PlannerDraft
from solvers.planning.problem import Instance, Knowledge, Place, Problem, Service

MOST_TASKS = 4  # batch_size_max
AVAILABLE_PERCENT = 20  # of a GPU's SMs in use, at most, for tasks to be gathered for it
OVERLOADED_PERCENT = 90  # of the SMs: more draws power sharply (section 2.4)
MOST_LOSS_SHARE = 0.04  # of accuracy
MOST_ROUNDS = 200
WAITS = "waits: no GPU with room suits it, and its variants' mean accuracy holds"
BEST_AFFINITY = 100.0  # with an empty GPU


def plan(problem: Problem, knowledge: Knowledge, budget: PlannerBudget) -> PlannerDraft:
    """Returns OLTunes' next plan; it depends on what runs and on the rates alone."""
    fleet = _TunedFleet(problem)
    fleet.stop_spare()
    rounds = 0
    while rounds < MOST_ROUNDS and (fleet.gather() or fleet.feed_back()):
        rounds += 1
        fleet.grown.count()
    method = f"idlest GPU first, affinity, {fleet.gathered} gathered, {fleet.fed_back} by feedback, {fleet.tuned} tuned"
    return fleet.grown.draft(method, WAITS)


class _TunedFleet:
    """The fleet with the records of each service."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.grown = GrowingFleet(problem)
        self.gathered = self.fed_back = self.tuned = 0
        load = sum(seat.sm_percent for seat in self.grown.seats) / max(1, 100 * len(self.grown.rooms.places))
        self.records: Mapping[str, Sequence[TunedRecord]] = {
            name: scored(problem, service, self.grown.shapes[name], self.grown.short(service), min(1.0, load))
            for name, service in problem.services.items()
        }

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

    def gather(self) -> bool:
        """Fills each GPU that is available, the idlest first, by Algorithm 2; returns whether anything was placed."""
        before = self.gathered
        tasks = self._queue()
        rooms = self.grown.rooms
        available = [place for place in rooms.places if rooms.used_percent(place) <= AVAILABLE_PERCENT]
        for place in sorted(available, key=lambda place: (rooms.used_percent(place), place)):
            placed = []
            for service in tasks:
                if self.grown.is_lacking(service) and len(self.grown.at(place)) < MOST_TASKS:
                    seat = self._fitted(service, place)
                    placed += [seat] if seat else []
            self.gathered += len(placed)
            self._tune(placed)
        return self.gathered > before

    def feed_back(self) -> bool:
        """Places the first task that was not gathered for any GPU, if possible where all suit each other."""
        for service in self._queue():
            admitted, rooms = self._admitted(service), self.grown.rooms
            found = [
                (affinity < THRESHOLD_AFFINITY, number, -affinity, rooms.used_percent(place), place)
                for number, record in enumerate(admitted)
                for place in rooms.places_for(record.shape, service)
                for affinity in [self._affinity(service, record, place)]
            ]
            if found:
                _, number, *_, place = min(found)
                self.grown.add(service, admitted[number].shape, place)
                self.fed_back += 1
                return True
        return False

    def _queue(self) -> list[Service]:
        """Returns the services that lack an instance in the order of both queues."""
        lacking = [service for service in self.problem.services.values() if self.grown.is_lacking(service)]

        def urgency(service: Service) -> tuple[bool, float, float, str]:
            records = self.records[service.name]
            latency_ms = sum(record.shape.exec_ms for record in records) / max(1, len(records))
            return not is_critical(service), service.slo_ms / max(latency_ms, 1e-9), latency_ms, service.name

        return sorted(lacking, key=urgency)

    def _admitted(self, service: Service) -> list[TunedRecord]:
        return [
            record
            for record in self.records[service.name]
            if keeps_accuracy(
                self.grown, service, record.shape.variant, record.shape.rate_per_second, MOST_LOSS_SHARE
            )
        ]  # fmt: skip

    def _fitted(self, service: Service, place: Place) -> Instance | None:
        """Places the task on this GPU if it is of the two best types, and all there suit each other (fitForBatch)."""
        beside, rooms = self.grown.at(place), self.grown.rooms
        for record in best_records(self._admitted(service)):
            shape = record.shape
            if shape.pool != rooms.pool_of(place) or not suits(
                self.problem, service, shape.variant, shape.batch, shape.pool.gpu_type, beside
            ):
                continue
            is_calm = not beside or rooms.used_percent(place) + shape.sm_percent <= OVERLOADED_PERCENT
            if is_calm and place in rooms.places_for(shape, service):
                return self.grown.add(service, shape, place)
        return None

    def _affinity(self, service: Service, record: TunedRecord, place: Place) -> float:
        shape, beside = record.shape, self.grown.at(place)
        return mean_affinity(self.problem, service, shape.variant, shape.batch, shape.pool.gpu_type, beside)

    def _tune(self, placed: Sequence[Instance]) -> None:
        """Raises the batch of one task that leaves memory unused, throughput-oriented work first (O5)."""
        services = self.problem.services
        for seat in sorted(placed, key=lambda line: (is_critical(services[line.service]), line.id)):
            free_gib = self.problem.type_of(seat.node).memory_gib - sum(
                line.memory_gib for line in self.grown.at(seat.place) if line.id != seat.id
            )
            shapes = [record.shape for record in self.records[seat.service]]
            pool = self.grown.rooms.pool_of(seat.place)
            alike = [
                shape
                for shape in shapes
                if (shape.pool, shape.variant, shape.sm_percent) == (pool, seat.variant, seat.sm_percent)
                and shape.memory_gib <= free_gib
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
                self.grown.retune(seat, max(better, key=lambda shape: (shape.rate_per_second, -shape.batch)))
                self.tuned += 1
                return


def mean_affinity(
    problem: Problem, service: Service, variant: str, batch: int, gpu_type: str, beside: Sequence[Instance]
) -> float:
    """Returns the mean affinity of a variant with the instances on a GPU."""
    if not beside:
        return BEST_AFFINITY
    own = _ratio(problem, service, variant, batch, gpu_type)
    total = 0.0
    for line in beside:
        other = problem.services[line.service]
        workload = workload_affinity(own, _ratio(problem, other, line.variant, line.batch, gpu_type))
        variants = variant_affinity(is_high(problem, service, variant), is_high(problem, other, line.variant))
        total += (workload + variants) / 2
    return total / len(beside)


def suits(
    problem: Problem, service: Service, variant: str, batch: int, gpu_type: str, beside: Sequence[Instance]
) -> bool:
    """Returns whether a variant suits the instances on a GPU: isAffinityHigh of Algorithm 3."""
    return mean_affinity(problem, service, variant, batch, gpu_type, beside) >= THRESHOLD_AFFINITY


def is_high(problem: Problem, service: Service, variant: str) -> bool:
    """Returns whether a variant is in the upper half of its model's accuracies, as an only variant is."""
    accuracies = {entry.name: entry.accuracy for entry in problem.models[service.model]}
    return accuracies[variant] >= (min(accuracies.values()) + max(accuracies.values())) / 2


def keeps_accuracy(fleet: GrowingFleet, service: Service, variant: str, rate: float, most_loss_share: float) -> bool:
    """Returns whether an instance of this variant keeps the mean accuracy of its service (O6).

    The mean is over the rates that instances can carry. The loss is from the best variant that the service admits.
    """
    best = max(fleet.accuracy(service, admitted) for admitted in service.variants)
    least = max(service.mean_accuracy, (1 - most_loss_share) * best)
    lines = [(fleet.rates[seat.id], fleet.accuracy(service, seat.variant)) for seat in fleet.of(service.name)]
    lines.append((rate, fleet.accuracy(service, variant)))
    return sum(carried * (accuracy - least) for carried, accuracy in lines) >= -1e-9


def _ratio(problem: Problem, service: Service, variant: str, batch: int, gpu_type: str) -> float:
    profile = problem.profiles[service.model, variant, gpu_type]
    return compute_to_memory(profile.latency_ms[batch])

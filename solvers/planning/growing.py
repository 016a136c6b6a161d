"""A fleet to which a planner adds instances one after the other; what runs stays where it is."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from solvers.planning.carried import accepted_rates, admitted, carry
from solvers.planning.fleet.offers import SHARED_PRESSURE, FleetShape, read_offers, why_no_shape
from solvers.planning.fleet.rooms import FleetRooms
from solvers.planning.plan import Unserved
from solvers.planning.planner_draft import PlannerDraft
from solvers.planning.problem import Instance, Place, PlacedJob, Problem, Service
from solvers.planning.stopping import spare_instances

CRITICAL_PRIORITY = 100  # services below it are throughput-oriented work
EXACTLY = 1e-9


def is_critical(service: Service) -> bool:
    """Returns whether a service is latency-critical work, for systems that know two classes of work."""
    return service.priority >= CRITICAL_PRIORITY


class GrowingFleet:
    """The instances while a plan is made, with what each carries among its neighbours."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        state = problem.state
        self._jobs: Sequence[PlacedJob] = state.jobs if state else ()
        self._by_service: dict[str, dict[str, Instance]] = {name: {} for name in problem.services}  # and by id
        self._at: dict[Place, dict[str, Instance]] = defaultdict(dict)
        self.turns: Counter[str] = Counter()  # how often the instances of a service, or their rates, have changed
        self._short: dict[str, float] = {}  # of services that have not changed since
        self._uncounted: set[Place] = set()  # GPUs that have changed since the last count
        for seat in admitted(problem, state.running, state.jobs) if state else []:
            self._keep(seat)
        self.rooms = self._rooms()
        self.shapes = {
            service.name: read_offers(problem).find_knee_shapes(service, self.rooms.pools)
            for service in problem.services.values()
        }
        self.rates: dict[str, float] = {}  # by instance
        self.count()

    @property
    def seats(self) -> list[Instance]:
        return [seat for own in self._by_service.values() for seat in own.values()]

    def of(self, service: str) -> list[Instance]:
        return list(self._by_service[service].values())

    def at(self, place: Place) -> list[Instance]:
        return list(self._at[place].values()) if place in self._at else []

    def short(self, service: Service) -> float:
        """Returns the rate that the service's instances do not carry."""
        if (known := self._short.get(service.name)) is not None:
            return known
        rest = service.rate_per_second - sum(self.rates[name] for name in self._by_service[service.name])
        found = self._short[service.name] = rest if rest > EXACTLY * service.rate_per_second else 0.0
        return found

    def is_lacking(self, service: Service) -> bool:
        return bool(self.short(service)) or len(self._by_service[service.name]) < service.min_instances

    def accuracy(self, service: Service, variant: str) -> float:
        return next((known.accuracy for known in self.problem.models[service.model] if known.name == variant), 0.0)

    def accurate_shapes(self, service: Service) -> list[FleetShape]:
        """Returns the shapes of variants that keep the service's mean accuracy by themselves."""
        return [
            shape
            for shape in self.shapes[service.name]
            if self.accuracy(service, shape.variant) >= service.mean_accuracy
        ]

    def best_first(self, service: Service) -> list[FleetShape]:
        """Returns the accurate shapes, those first that carry most of what is short, and of these the smallest."""
        wanted = self.short(service) or service.rate_per_second

        def rank(shape: FleetShape) -> tuple[float, float, int]:
            return -min(shape.rate_per_second, wanted), shape.share, shape.batch

        return sorted(self.accurate_shapes(service), key=rank)

    def add(self, service: Service, shape: FleetShape, place: Place) -> Instance:
        """Places an instance on a GPU with room for it."""
        self.rooms.put_on(place, shape, service)
        seat = Instance(
            self.rooms.names.numbered(service.name), service.name, *place, shape.variant, shape.batch, 0.0,
            shape.sm_percent, shape.memory_gib, self.rooms.clock_mhz(place), 0.0,
        )  # fmt: skip
        self.rates[seat.id] = shape.rate_per_second
        self._keep(seat)
        return seat

    def retune(self, seat: Instance, shape: FleetShape) -> None:
        """Gives an instance another batch; its GPU has memory for it."""
        self.rooms.hold_memory(seat.place, seat.memory_gib, shape.memory_gib)
        self.rates[seat.id] = shape.rate_per_second
        self._keep(replace(seat, batch=shape.batch, memory_gib=shape.memory_gib))

    def stop_spare(self, worth: Callable[[Instance], float]) -> None:
        """Stops instances, those of the least worth first, while the others of their service carry a quarter more."""
        for service in self.problem.services.values():
            ranked = sorted(self.of(service.name), key=lambda line: (worth(line), line.id))
            gone = spare_instances(service, [(line.id, self.rates[line.id]) for line in ranked])
            self._drop([line for line in ranked if line.id in gone])
        self.rooms = self._rooms()
        self.count()

    def count(self) -> None:
        """Finds what each instance carries among its neighbours; only where something has changed since."""
        seats = [seat for place in sorted(self._uncounted) for seat in self._at[place].values()]
        jobs = [job for job in self._jobs if not self._uncounted.isdisjoint(job.places)]
        for seat, rate in zip(seats, accepted_rates(self.problem, seats, jobs), strict=True):
            if self.rates.get(seat.id) != rate:
                self.rates[seat.id] = rate
                self._change(seat.service)
        self._uncounted.clear()

    def _keep(self, seat: Instance) -> None:
        self._by_service[seat.service][seat.id] = self._at[seat.place][seat.id] = seat
        self._uncounted.add(seat.place)
        self._change(seat.service)

    def _drop(self, seats: Iterable[Instance]) -> None:
        for seat in seats:
            del self._by_service[seat.service][seat.id], self._at[seat.place][seat.id]
            self._uncounted.add(seat.place)
            self._change(seat.service)

    def _change(self, service: str) -> None:
        self.turns[service] += 1
        self._short.pop(service, None)

    def draft(self, method: str, waits: str) -> PlannerDraft:
        """Returns the plan; `waits` says why a service that would fit somewhere is not served whole."""
        instances, rests = carry(self.problem, self.seats, self._jobs)
        if inaccurate := self._inaccurate(instances):
            self._drop([seat for seat in self.seats if seat.id in inaccurate])
            instances, rests = carry(self.problem, self.seats, self._jobs)
        unserved = tuple(Unserved(name, rate, self._why(name, waits)) for name, rate in sorted(rests.items()))
        return PlannerDraft(tuple(instances), unserved, method)

    def _inaccurate(self, instances: Sequence[Instance]) -> set[str]:
        """Returns the instances of too small variants, of services whose mean accuracy they would break."""
        found: set[str] = set()
        for service in self.problem.services.values():
            mine = [line for line in instances if line.service == service.name]
            over = [self.accuracy(service, line.variant) - service.mean_accuracy for line in mine]
            if sum(line.rate_per_second * gap for line, gap in zip(mine, over, strict=True)) < 0:
                found |= {line.id for line, gap in zip(mine, over, strict=True) if gap < 0}
        return found

    def _why(self, name: str, waits: str) -> str:
        service, shapes = self.problem.services[name], self.shapes[name]
        if not shapes:
            return why_no_shape(self.problem)
        if any(self.rooms.room_for(shape, service) for shape in shapes):
            return waits
        smallest = min(shapes, key=lambda shape: (shape.sm_percent, shape.memory_gib))
        return self.rooms.why_not(smallest, service)

    def _rooms(self) -> FleetRooms:
        return FleetRooms(self.problem, self.seats, self._jobs, SHARED_PRESSURE)

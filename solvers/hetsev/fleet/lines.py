"""Keeps the instances on each GPU while some are added: what each carries and bears beside the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from math import inf

import numpy as np

from solvers.latency import latency_at, timeout_for
from solvers.planning.fleet.grids import ROUNDING, accepted_rate
from solvers.planning.fleet.offers import FleetShape
from solvers.planning.fleet.room_view import list_neighbours
from solvers.planning.fleet.token_shapes import carried_by, predicted
from solvers.planning.fleet.trial_rooms import TrialRooms
from solvers.planning.judge import Resident
from solvers.planning.judge.readings import JudgedGpu, Reader, slow_down
from solvers.planning.new_names import NewNames
from solvers.planning.pressures import add_parts, slow_each
from solvers.planning.problem import Instance, Place, Problem, Service

SAME_SHARE = 1e-9
LEAST_PRESSURE = 0.005  # of a newcomer
CLOSE_PRESSURE = 1e-6  # more than rounding makes of a pressure
LEAST_SENSITIVITY = 1e-12


class FleetLines:
    """The lines of a plan by service and GPU. The room that they leave is noted as they change."""

    def __init__(self, problem: Problem, rooms: TrialRooms) -> None:
        self.problem, self.rooms, self._reader = problem, rooms, Reader(problem)
        self._of_service: dict[str, list[Resident]] = defaultdict(list)
        self._running: dict[int, Instance] = {}  # by `id()` of its line
        self._changed: dict[int, Resident] = {}
        self._added: list[tuple[Resident, JudgedGpu]] = []
        for place, gpu in sorted(rooms.gpus.items(), key=lambda known: known[0]):
            gpu.residents.sort(key=lambda line: line.instance.id)
            slow_down(gpu, problem.policy)
            for line in gpu.residents:
                self._of_service[line.instance.service].append(line)
                self._running[id(line)] = line.instance
            is_whole = any(line.service and line.service.tokens for line in gpu.residents)  # nothing else fits there
            # Where shares are priced, taking a free one also removes strangers.
            if problem.policy.pricing == "gpu" and not is_whole:
                rooms.bear_no_more(place, self._find_unbearable(gpu))
        rooms.keep()
        self.begin(problem)

    def begin(self, problem: Problem) -> None:
        """Goes back to what runs, at the rates of this problem."""
        self.rooms.undo()
        for key, line in self._changed.items():
            line.instance = self._running[key]
        for line, gpu in self._added:
            gpu.residents.remove(line)
        for gpu in {id(gpu): gpu for _, gpu in self._added}.values():
            slow_down(gpu, problem.policy)
        self.problem, self._changed, self._added, self._names = problem, {}, [], NewNames(problem)

    def running(self, service: str) -> list[Resident]:
        """Returns the lines of a service that run."""
        return list(self._of_service[service])

    def before(self, line: Resident) -> Instance | None:
        """Returns a line as it runs; None for one that is added."""
        return self._running.get(id(line))

    def list_changed(self) -> list[tuple[Instance, Instance]]:
        """Returns the instances that run and change: as they run, and as they are now."""
        changed = [(self._running[key], line) for key, line in self._changed.items()]
        return [(before, self._predict(line)) for before, line in changed if line.instance != before]

    def list_added(self) -> list[Instance]:
        return sorted((self._predict(line) for line, _ in self._added), key=lambda instance: instance.id)

    def cap(self, line: Resident) -> float:
        """Returns the most that a line carries beside what runs with it now."""
        service, instance = self._service(line), line.instance
        if service.tokens is not None:
            return carried_by(self.problem, service, instance)
        return accepted_rate(self.problem.policy, service, instance.batch, _exec_ms(line)) * ROUNDING

    def set_rate(self, line: Resident, rate: float) -> None:
        """Gives a line a rate, and the batch timeout that it needs; its own where no timeout is enough."""
        was = self._running.get(id(line))
        if was and abs(rate - was.rate_per_second) <= SAME_SHARE * rate:
            instance, rate = was, was.rate_per_second
        else:
            instance = line.instance
        service = self._service(line)
        if service.tokens is not None:
            if rate != instance.rate_per_second:
                instance = predicted(self.problem, service, replace(instance, rate_per_second=rate))
            self._change(line, instance)
            return
        timeout = self._wait_ms(line, rate, _exec_ms(line))
        if timeout is None or _is_same(timeout, instance.batch_timeout_ms):
            timeout = instance.batch_timeout_ms
        if (rate, timeout) != (instance.rate_per_second, instance.batch_timeout_ms):
            instance = _retune(instance, rate, timeout, instance.exec_ms, instance.latency_ms)
        self._change(line, instance)

    def fill(self, line: Resident, rate: float) -> None:
        """Lets a line carry all that it may until all of its service share the rate: so long it bears nothing more."""
        if self.problem.policy.pricing == "share":
            self._change(line, replace(line.instance, rate_per_second=rate))
        elif line.demand.sensitivity:
            self.rooms.bear_no_more(line.instance.place, LEAST_PRESSURE)

    def settle(self, lines: Iterable[Resident]) -> None:
        """Notes that these lines have their rates now, and may bear something again."""
        for line in lines:
            self.rooms.bear_again(line.instance.place)

    def add(self, service: Service, shape: FleetShape, place: Place) -> Resident | None:
        """Starts an instance there; None if something there would not keep its SLO at its rate beside it."""
        gpu, policy = self.rooms.gpu_at(place), self.problem.policy
        terms = (
            service.name, *place, shape.variant, shape.batch, 0.0, shape.sm_percent, shape.memory_gib,
            self.rooms.clock_mhz(place), shape.rate_per_second,
        )  # fmt: skip
        line = self._reader.resident(Instance("", *terms), service, gpu.node)
        gpu.residents.append(line)
        slow_down(gpu, policy)
        others = gpu.residents[:-1]
        timeouts = [found for other in others if (found := self._find_timeout(other, _exec_ms(other))) is not None]
        if len(timeouts) < len(others):
            gpu.residents.pop()
            slow_down(gpu, policy)
            if policy.pricing == "gpu":
                self.rooms.bear_no_more(place, min(add_parts(shape.pressure), self._find_unbearable(gpu)))
            return None
        for other, timeout in zip(others, timeouts, strict=True):
            if not _is_same(timeout, other.instance.batch_timeout_ms):
                self._change(other, replace(other.instance, batch_timeout_ms=timeout))
        line.instance = Instance(self._names.at(service.name, place), *terms)
        self.rooms.put_on(place, shape, service)
        self._added.append((line, gpu))
        if others:
            self.fill(line, shape.rate_per_second)
        return line

    def _find_unbearable(self, gpu: JudgedGpu) -> float:
        """Returns the pressure more beside which some line on a GPU would not keep its SLO at its rate."""
        if not gpu.residents and not gpu.jobs:
            return inf
        alone, feels, beside, most_ms = list_neighbours(self.problem, gpu).T
        left = most_ms.real / alone.real - 1 - slow_each(feels, beside)
        borne = left / np.maximum(np.maximum(feels.real, feels.imag), LEAST_SENSITIVITY)
        return max(float(borne.min()), 0.0) + CLOSE_PRESSURE

    def _find_timeout(self, line: Resident, exec_ms: float) -> float | None:
        """Returns the batch timeout that a line needs at this time of a batch; None if it may not carry its rate."""
        policy, instance = self.problem.policy, line.instance
        if instance.rate_per_second * exec_ms / 1000 / instance.batch > policy.utilization * (1 + SAME_SHARE):
            return None
        return self._wait_ms(line, instance.rate_per_second, exec_ms)

    def _wait_ms(self, line: Resident, rate: float, exec_ms: float) -> float | None:
        service, judged = self._service(line), exec_ms * (1 + self.problem.policy.exec_margin)
        if judged > service.slo_ms:
            return None
        return timeout_for(line.instance.batch, judged, service.slo_ms, service.percentile, rate, service.variation)

    def _service(self, line: Resident) -> Service:
        return self.problem.services[line.instance.service]

    def _change(self, line: Resident, instance: Instance) -> None:
        if id(line) in self._running:
            self._changed[id(line)] = line
        line.instance = instance

    def _predict(self, line: Resident) -> Instance:
        instance, service = line.instance, self._service(line)
        if service.tokens is not None:
            return instance
        judged = _exec_ms(line) * (1 + self.problem.policy.exec_margin)
        latency_ms = latency_at(
            instance.batch, judged, instance.rate_per_second, service.percentile,
            min(instance.batch_timeout_ms, judged), service.variation,
        )  # fmt: skip
        return _retune(
            instance, instance.rate_per_second, instance.batch_timeout_ms, _exec_ms(line), float(latency_ms)
        )  # fmt: skip


def _exec_ms(line: Resident) -> float:
    assert line.exec_ms is not None, "a GPU with a line that cannot be read is closed"
    return line.exec_ms


def _retune(line: Instance, rate: float, timeout_ms: float, exec_ms: float, latency_ms: float) -> Instance:
    """Returns a line with another rate: `replace` takes five times as long, and hundreds of lines change at a time."""
    return Instance(
        line.id, line.service, line.node, line.gpu, line.variant, line.batch, timeout_ms, line.sm_percent,
        line.memory_gib, line.clock_mhz, rate, exec_ms, latency_ms, line.gpus,
    )  # fmt: skip


def _is_same(timeout_ms: float, other_ms: float) -> bool:
    return abs(timeout_ms - other_ms) <= SAME_SHARE * max(1.0, timeout_ms)

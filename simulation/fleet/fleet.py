"""A simulated fleet: every node, and the requests that arrive at it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass

import numpy as np

from agents.keeper.copies import NodeCopy, Stage
from simulation.clock import Clock
from simulation.fleet.node import LightNode
from simulation.fleet_truth import FleetTruth, SimulatedResident
from simulation.serving.admission import admit_arrivals
from simulation.serving.arrivals import RequestTimes
from simulation.serving.batches import Floats
from simulation.serving.copies import DRAWS_PER_TICK, CopyWork, largest_batch
from simulation.serving.token_copies import TokenWork, server_of, spread
from simulation.serving.totals import CountedCopies, Total
from simulation.shapes import Shape, steady
from solvers.planning.problem import Demand, Node

RAMP_SECONDS = 30.0  # until all who will ask do ask
EXEC_NOISE_SHARE = 0.01  # as a share of a batch's time: less than the margin that plans keep


NodeMaker = Callable[[Node, FleetTruth, Clock, int], LightNode]  # the last is a seed


def make_light_node(node: Node, truth: FleetTruth, clock: Clock, seed: int) -> LightNode:
    return LightNode(node.name, node.gpu_type, node.gpu_count, truth, clock, seed)


@dataclass(frozen=True, slots=True)
class ServingCopy:
    """A ready copy, as a gateway sees it."""

    id: str
    place: str  # node/gpu
    weight: float
    waiting: int
    running: int  # requests, in its batch


class SimulatedFleet:
    """Nodes and their load. The caller moves the clock; `tick` catches up with it."""

    def __init__(
        self,
        truth: FleetTruth,
        clock: Clock,
        shapes: Mapping[str, Shape] | None = None,
        seed: int = 0,
        left_out: Collection[str] = (),
        patient: bool = False,
        make_node: NodeMaker = make_light_node,
        saves: MutableMapping[str, float] | None = None,
    ) -> None:
        self.truth = truth
        self.clock = clock
        self.shapes = dict(shapes or {})
        self.arrivals = RequestTimes(seed)
        self.patient = patient  # requests to a service begin once it is served, and then ramp up
        self.left_out = frozenset(left_out)  # nodes and services outside this simulation
        nodes = [node for name, node in truth.problem.nodes.items() if name not in self.left_out]
        self._make: Callable[[Node], LightNode] = lambda node: make_node(node, self.truth, clock, seed)
        self._machines = {node.name: self._make(node) for node in nodes}
        self.machines = list(self._machines.values())  # all that there ever were
        self.nodes = dict(self._machines)  # those that are declared now
        self.declared: dict[str, float] = {}
        self.services: dict[str, Total] = {}
        self._saves = {} if saves is None else saves  # by job: steps or requests at its last save
        self.follow(truth)
        self._rng = np.random.default_rng([seed, 7])
        self._activity = np.random.default_rng([seed, 11])  # of neighbours
        self._at = clock.seconds
        self.most_open: Mapping[str, int] = {}  # by service: most that the gateway admits at once
        self.most_by_copy: Mapping[str, int] = {}  # the same by copy
        self._begun: dict[str, float] = {}  # when a service was first served
        self._counted = CountedCopies()

    def follow(self, truth: FleetTruth) -> None:
        """Follows a changed world: services and nodes come and go, rates change; running copies continue.

        The machine of a deleted node stays, and is there when the node is declared again.
        """
        self.truth = truth
        services = truth.problem.services.values()
        self.declared = {
            service.name: service.rate_per_second for service in services if service.name not in self.left_out
        }
        self.services = {name: self.services.get(name, Total()) for name in self.declared}
        self.nodes = {name: node for name, node in self._machines.items() if name in truth.problem.nodes}
        for gone in set(self._saves) - truth.problem.jobs.keys():
            del self._saves[gone]
        for node in self.nodes.values():
            node.truth = truth

    def add_machine(self, name: str) -> None:
        """Adds a new machine for a node of the world; one that had its name before is gone."""
        machine = self._machines[name] = self.nodes[name] = self._make(self.truth.problem.nodes[name])
        self.machines.append(machine)
        machine.truth, machine.memory.incarnation = self.truth, int(self.clock.seconds) + 1

    def rate(self, service: str, seconds: float) -> float:
        return self.declared[service] * self.shapes.get(service, steady)(seconds)

    def tick(self) -> None:
        """Moves to the clock's time: copies start and stop, requests arrive and are served."""
        since, until = self._at, self.clock.seconds
        self._at = until
        for node in self.nodes.values():
            node.tick()
        self.arrivals.latest.clear()
        if until <= since:
            return
        ready: dict[str, list[tuple[NodeCopy, CopyWork]]] = {}
        for node in self.nodes.values():
            self._set_times(node)  # gateways admit by what copies answer now
            for copy in node.serving():
                ready.setdefault(copy.service, []).append((copy, node.work[copy.id]))
        for name in self.declared:
            self._arrive(name, ready.get(name, []), since, until)
        for node in self.nodes.values():
            self._run(node, since, until)

    def serving(self) -> dict[str, list[ServingCopy]]:
        """Returns the ready copies of each service, with their open requests."""
        found: dict[str, list[ServingCopy]] = {name: [] for name in self.declared}
        for node in self.nodes.values():
            for copy in node.serving():
                if copy.service in found:
                    work, place = node.work[copy.id], f"{node.name}/{node.index(copy)}"
                    open_requests = work.open_requests(self._at)
                    found[copy.service].append(ServingCopy(copy.id, place, copy.wanted.rate_per_second, *open_requests))
        return found

    def is_ramping(self, service: str) -> bool:
        """Returns whether the clients have only just begun to send."""
        return self.patient and self._at - self._begun.get(service, self._at) < RAMP_SECONDS

    def ready(self, service: str) -> int:
        """Counts the copies that serve the service now."""
        return sum(copy.service == service for node in self.nodes.values() for copy in node.serving())

    def _arrive(self, name: str, ready: list[tuple[NodeCopy, CopyWork]], since: float, until: float) -> None:
        total, service = self.services[name], self.truth.problem.services[name]
        # A service is declared again, now with or without tokens: its older copies understand no new requests.
        ready = [(copy, work) for copy, work in ready if isinstance(work, TokenWork) == (service.tokens is not None)]
        if self.patient and not ready and name not in self._begun:
            return
        begun = self._begun.setdefault(name, since) if self.patient else None
        expected = self._count_expected(name, since, until, begun)
        known = self.arrivals.times(name, since, until, expected)
        whole = int(self._rng.poisson(expected)) if known is None else len(known)
        total.requests += whole
        if known is not None:
            self.arrivals.note(name, known)
        if not ready:
            total.refused += whole
            total.errors += whole
            if known is None:
                self.arrivals.note_refused(name, since, until, whole)
            return
        if service.tokens is not None:
            times = self._drawn(name, since, until, whole) if known is None else known
            servers = [(copy, work) for copy, work in ready if isinstance(work, TokenWork)]
            spread(servers, self.arrivals.draw_with_lengths(name, self.truth.lengths(service), times))
            return
        weights = np.array([max(copy.wanted.rate_per_second, 1e-9) for copy, _ in ready])
        weights /= weights.sum()
        if name in self.most_open:
            times = self._drawn(name, since, until, whole) if known is None else known
            first = self._rng.choice(len(ready), whole, p=weights)
            turned = admit_arrivals(ready, times, first, self.most_open[name], self.most_by_copy)
            total.turned_away += turned
            total.errors += turned
            return
        if known is not None:
            chosen = self._rng.choice(len(ready), whole, p=weights)
            for number, (_, work) in enumerate(ready):
                work.arrive(known[chosen == number])
            return
        shares = self._rng.multinomial(whole, weights)
        for (_, work), share in zip(ready, shares, strict=True):
            if share:
                work.arrive(self._drawn(name, since, until, int(share)))

    def _drawn(self, name: str, since: float, until: float, count: int) -> Floats:
        """Draws the times of so many Poisson arrivals, in order."""
        times: Floats = np.sort(self._rng.uniform(since, until, count))
        self.arrivals.note(name, times)
        return times

    def _count_expected(self, name: str, since: float, until: float, begun: float | None) -> float:
        """Returns how many requests are expected; fewer while the clients have only just begun."""
        expected = self.rate(name, (since + until) / 2) * (until - since)
        return expected if begun is None else expected * min(1.0, (until - begun) / RAMP_SECONDS)

    def _set_times(self, node: LightNode) -> None:
        """Sets how long a batch of each copy takes, beside what runs on its GPU by now."""
        for number, copies in self._running(node):
            residents = {copy.id: _resident_of(node, copy) for copy in copies}
            for copy in copies:
                work = node.work[copy.id]
                if isinstance(work, TokenWork):
                    work.set_server(server_of(self.truth, node.gpu_type, copy, node.clock_mhz(number)))
                elif copy.served:
                    neighbours = [resident for name, resident in residents.items() if name != copy.id]
                    self._set_time(node, copy, neighbours, node.clock_mhz(number))

    def _set_time(
        self, node: LightNode, copy: NodeCopy, neighbours: Sequence[SimulatedResident], clock_mhz: float
    ) -> None:
        work, key, batch, sm_percent = node.work[copy.id], node.key(copy), _batch(copy), copy.wanted.sm_percent
        sampled = self.truth.batches_ms(
            key, batch, sm_percent, neighbours, clock_mhz, self._activity, DRAWS_PER_TICK
        )  # fmt: skip
        if sampled is None:
            work.exec_s, work.varies = self.truth.exec_ms(key, batch, sm_percent, neighbours, clock_mhz) / 1000, None
            return
        work.exec_s = float(sampled.mean()) / 1000
        work.varies = sampled / sampled.mean()

    def _running(self, node: LightNode) -> Iterator[tuple[int, list[NodeCopy]]]:
        """Yields the GPUs that work, with the copies whose processes run there."""
        by_gpu: dict[str, list[NodeCopy]] = {uuid: [] for uuid in node.uuids}
        for copy in node.alive():
            if copy.stage not in (Stage.STARTING, Stage.SWAPPED):
                for gpu in by_gpu.keys() & copy.devices:  # the process of a board that is gone is gone, too
                    by_gpu[gpu].append(copy)
        yield from ((number, by_gpu[uuid]) for number, uuid in enumerate(node.uuids) if number not in node.lost)

    def _run(self, node: LightNode, since: float, until: float) -> None:
        for number, copies in self._running(node):
            clock_mhz = node.clock_mhz(number)
            residents = {copy.id: _resident_of(node, copy) for copy in copies}
            for copy in copies:
                if copy.gpu != node.uuids[number]:
                    continue  # its first GPU stands for all of them
                neighbours = [resident for name, resident in residents.items() if name != copy.id]
                work = node.work[copy.id]
                if copy.served:
                    noise = self._noise()
                    work.serve(copy, since, until, noise if work.varies is None else noise * work.varies)
                elif copy.stage is Stage.READY:
                    job = copy.wanted.owner
                    speed = self.truth.units_per_second(
                        job, node.gpu_type, copy.wanted.sm_percent, neighbours, clock_mhz
                    )
                    work.train(speed, since, until, self._saves, job)
                elif work.saved_at is not None:
                    work.save(until, self._saves, copy.wanted.owner)  # it saves before it ends
            drawn = [(residents[copy.id], node.work[copy.id].busy_share) for copy in copies]
            busy = sum(resident.sm_percent * share for resident, share in drawn)
            node.read(number, self.truth.watts(node.gpu_type, drawn, clock_mhz), busy, until - since)
        for copy in node.copies.values():
            if copy.served:
                self._add_up(copy, node.work[copy.id])

    def _noise(self) -> Floats:
        return 1.0 + EXEC_NOISE_SHARE * np.clip(self._rng.standard_normal(DRAWS_PER_TICK), -3, 3)

    def _accuracy(self, copy: NodeCopy) -> float:
        problem = self.truth.problem
        variants = problem.models[problem.services[copy.service].model]
        return next((variant.accuracy for variant in variants if variant.name == copy.wanted.variant), 0.0)

    def _add_up(self, copy: NodeCopy, work: CopyWork) -> None:
        total = self.services.get(copy.service)
        if total is not None:
            self._counted.add_up(total, copy, work, self._accuracy(copy))


def _batch(copy: NodeCopy) -> float:
    return copy.wanted.batch.planned if copy.wanted.batch else 1.0


def _resident_of(node: LightNode, copy: NodeCopy) -> SimulatedResident:
    """Returns how much a copy of the node slows its neighbours down and draws."""
    problem, wanted, busy = node.truth.problem, copy.wanted, node.work[copy.id].busy_share
    if copy.served:
        found = problem.profiles.get(key := node.key(copy))
        return SimulatedResident(found.demand if found else Demand(), wanted.sm_percent, key, largest_batch(copy), busy)
    job = problem.jobs.get(wanted.owner)
    demand = job.profiles[node.gpu_type].demand if job and node.gpu_type in job.profiles else Demand()
    return SimulatedResident(demand, wanted.sm_percent, ("job", wanted.owner, node.gpu_type), 1, busy)

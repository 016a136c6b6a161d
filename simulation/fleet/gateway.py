"""The gateway of a simulated fleet: reports its counts of every service once a second, as a sidecar does.

In an overload it admits as many as a sidecar would, by the sidecar's own function (`agents.gateway.overload`), and it
measures bursts with the sidecar's own meter (`agents.gateway.bursts`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from agents.contract.gateways import GatewayCounts, ServiceCounts
from agents.gateway.bursts import BurstMeter
from agents.gateway.overload import Pressure, ReadyCopy, ServiceLoad, ServiceTarget, update_pressure
from app.store.database.database import Database
from app.store.fleet import endpoints, gateways
from app.store.fleet.endpoints import GatewayLimit
from simulation.fleet.fleet import SimulatedFleet
from simulation.serving.totals import Total

COUNT_SECONDS = 1.0
NAME = "simulated"


class Gateway:
    """Counts since it started; `restart` starts again from zero, `away` reports nothing.

    `changes` gives a number that is another one after limits have changed; else the database is asked for it.
    """

    def __init__(
        self, fleet: SimulatedFleet, database: Database, changes: Callable[[], int] | None = None
    ) -> None:  # fmt: skip
        self.fleet = fleet
        self.away = False
        self._database = database
        self._changes = changes or (lambda: database.read(endpoints.version))
        self._began = self._birth()
        self._sequence = 0  # a stored sequence of an earlier process raises it
        self._zero: dict[str, Total] = {}
        self._due = float("-inf")
        self.meters: dict[str, tuple[float, BurstMeter]] = {}  # by service, with the SLO that it measures by
        self._pressures: dict[str, Pressure] = {}
        self._limits: dict[str, GatewayLimit] = {}
        self._version = -1  # of `changes`, when the limits were read

    def count(self) -> None:
        """Counts the arrivals of the last tick in windows of each service's SLO; call it after every tick."""
        services = self.fleet.truth.problem.services
        self.meters = {name: known for name, known in self.meters.items() if name in services}
        for name, parts in self.fleet.arrivals.latest.items():
            if services[name].tokens or self.fleet.is_ramping(name):
                continue  # a sidecar measures where whole answers are promised; the ramp is the simulation's own
            slo_ms = services[name].slo_ms
            if self.meters.get(name, (0.0,))[0] != slo_ms:
                self.meters[name] = (slo_ms, BurstMeter(slo_ms))
            times, window_seconds = np.concatenate(parts), slo_ms / 1000
            if not len(times):
                continue
            windows = (times / window_seconds).astype(np.int64)
            first, counts = int(windows.min()), np.bincount(windows - windows.min())
            meter = self.meters[name][1]
            for number in np.flatnonzero(counts):
                middle = (first + int(number) + 0.5) * window_seconds
                meter.arrived(middle, middle, int(counts[number]))

    def report(self) -> bool:
        """Reports once a second; True if a report was due."""
        now = self.fleet.clock.seconds
        if self.away:
            return False
        self._look(now)
        if now < self._due:
            return False
        self._due = now + COUNT_SECONDS
        self._sequence += 1
        counts = GatewayCounts(began=self._began, sequence=self._sequence, services=tuple(self._services()))
        stored = self._database.repeatable(lambda connection: gateways.keep(connection, NAME, counts))
        self._sequence = max(self._sequence, stored)
        return True

    def restart(self) -> None:
        """Starts a new process, whose counts are zero."""
        self._zero = {name: total.copied() for name, total in self.fleet.services.items()}
        self._began = self._birth()
        self.meters = {}

    def _look(self, now: float) -> None:
        """Sets what is admitted from now on."""
        self._follow()
        services = self.fleet.truth.problem.services
        pressures = {}
        for name, copies in self.fleet.serving().items():
            total, service = self.fleet.services[name], services[name]
            if service.tokens is not None:
                continue  # as in a sidecar: a language model's server limits its queue itself
            limit = self._limits.get(name, GatewayLimit())
            ready = {copy.id: ReadyCopy(copy.weight, limit.in_time.get(copy.place, 0)) for copy in copies}
            waiting, running = sum(copy.waiting for copy in copies), sum(copy.running for copy in copies)
            ended = total.answered + total.errors - running  # the fleet counts a batch as answered when it begins
            counted = ServiceLoad(ended, total.turned_away, waiting + running, ready)
            target = ServiceTarget(service.slo_ms / 1000, service.percentile, 0 < limit.shed_share < 1)
            pressures[name] = update_pressure(self._pressures.get(name), counted, target, now)
        self._pressures = pressures
        self.fleet.most_open = {name: pressure.most_open for name, pressure in pressures.items() if pressure.most_open}
        self.fleet.most_by_copy = {
            id_: most for pressure in pressures.values() for id_, most in pressure.by_copy.items()
        }

    def _follow(self) -> None:
        """Reads the limits that the control plane sets, when they have changed."""
        version = self._changes()
        if version != self._version:
            self._version, self._limits = version, self._database.read(endpoints.read_limits)

    def _birth(self) -> str:
        return f"{NAME}-{self.fleet.clock.seconds:.3f}"

    def _services(self) -> list[ServiceCounts]:
        found = []
        for name, total in self.fleet.services.items():
            meter = self.meters.get(name)
            zero = self._zero.get(name, Total())
            counts = [int(count) for count in total.counts - zero.counts]
            while counts and not counts[-1]:
                counts.pop()
            ended = total.answered + total.errors
            found.append(
                ServiceCounts(
                    name,
                    requests=ended - zero.answered - zero.errors,
                    errors=total.errors - zero.errors,
                    shed=total.turned_away - zero.turned_away,
                    open=total.requests - ended,
                    timed=total.answered - zero.answered,
                    late=total.late_since(zero),
                    latency_counts=tuple(counts),
                    windows=meter[1].totals() if meter else (),
                    tokens=total.tokens_since(zero),
                    lengths=total.lengths_since(zero),
                )
            )
        return found

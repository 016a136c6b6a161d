"""A GPU and its batch servers as a few equations, to try the power law in tests and in `gpuwright bench power`.

Time of a batch: first x (fixed + (1 - fixed) x b) x (clocked x top / f + 1 - clocked).
Power: idle + sum of busy x peak x (f / top) ** e x (b / 32) ** 0.2, b at most 32. It is read ten times
a second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

TICKS_PER_SECOND = 10  # readings a second
LONGEST_QUEUE_SECONDS = 2.0  # longer waiting requests are refused


@dataclass(frozen=True, slots=True)
class PlantServer:
    """One instance: the time of its batches and its power, at the top clock."""

    id: str
    first_ms: float
    fixed: float  # the share of a batch's time that does not grow with its size
    peak_w: float  # at batch 32, always busy
    clocked: float = 0.9  # the share of its time that the clock shortens

    def batch_ms(self, batch: float, slowdown: float) -> float:
        slower = self.clocked * slowdown + 1 - self.clocked
        return self.first_ms * (self.fixed + (1 - self.fixed) * batch) * slower


@dataclass(frozen=True, slots=True)
class PlantPeriod:
    """One instance in one period."""

    latency_ms: float | None  # of the slowest requests
    busy: float
    queue: float
    batch: float  # as computed, on average
    requests: float
    refused: float


@dataclass(frozen=True, slots=True)
class Period:
    """One second of the GPU."""

    peak_w: float
    mean_w: float
    served: Mapping[str, PlantPeriod]


class Plant:
    """One GPU; its queues carry over from period to period."""

    def __init__(
        self,
        servers: Sequence[PlantServer],
        idle_w: float,
        top_mhz: int,
        exponent: float,
        noise: float,  # of each reading, in both directions
        seed: int,
    ) -> None:
        self.servers, self.idle_w, self.top_mhz, self.exponent = tuple(servers), idle_w, top_mhz, exponent
        self.noise = noise
        self._random = Random(seed)  # noqa: S311 (noise, not a secret)
        self._waiting = {server.id: 0.0 for server in servers}

    def period(self, clock_mhz: float, batches: Mapping[str, int], rates: Mapping[str, float]) -> Period:
        """Runs one second at this clock, with these largest batches and requests a second."""
        watts = []
        ticks: dict[str, list[PlantPeriod]] = {server.id: [] for server in self.servers}
        for _ in range(TICKS_PER_SECOND):
            drawn, served = self._tick(clock_mhz, batches, rates)
            for server in self.servers:
                waits = served[server.id].queue
                self._waiting[server.id] = waits
                ticks[server.id].append(served[server.id])
            watts.append(drawn * (1 + self._random.uniform(-self.noise, self.noise)))
        whole = {name: self._whole(found) for name, found in ticks.items()}
        return Period(max(watts), sum(watts) / TICKS_PER_SECOND, whole)

    def _tick(
        self, mhz: float, batches: Mapping[str, int], rates: Mapping[str, float]
    ) -> tuple[float, dict[str, PlantPeriod]]:
        watts, served = self.idle_w, {}
        for server in self.servers:
            served[server.id], drawn = self._serve(server, mhz, batches[server.id], rates[server.id])
            watts += drawn
        return watts, served

    def _serve(self, server: PlantServer, mhz: float, most: int, rate: float) -> tuple[PlantPeriod, float]:
        slowdown, seconds = self.top_mhz / mhz, 1 / TICKS_PER_SECOND
        there = self._waiting[server.id] + rate * seconds
        capacity = most / server.batch_ms(most, slowdown) * 1000
        if there > capacity * seconds:
            done, batch, busy = capacity * seconds, float(most), 1.0
        else:
            batch = _forming(server, slowdown, there / seconds / 1000, most)
            done, busy = there, there / batch * server.batch_ms(batch, slowdown) / 1000 / seconds
        remaining = there - done
        refused = max(0.0, remaining - capacity * LONGEST_QUEUE_SECONDS)
        remaining -= refused
        takes = server.batch_ms(batch, slowdown)
        late = takes * (1 + busy) + remaining / capacity * 1000
        noisy = 1 + self._random.uniform(-self.noise, self.noise)
        drawn = busy * server.peak_w * (mhz / self.top_mhz) ** self.exponent * min(1.0, batch / 32) ** 0.2
        return PlantPeriod(late * noisy if there > 0 else None, busy, remaining, batch, done, refused), drawn

    @staticmethod
    def _whole(ticks: Sequence[PlantPeriod]) -> PlantPeriod:
        latencies = [tick.latency_ms for tick in ticks if tick.latency_ms is not None]
        return PlantPeriod(
            max(latencies, default=None),
            sum(tick.busy for tick in ticks) / TICKS_PER_SECOND,
            sum(tick.queue for tick in ticks) / TICKS_PER_SECOND,
            sum(tick.batch for tick in ticks) / TICKS_PER_SECOND,
            sum(tick.requests for tick in ticks),
            sum(tick.refused for tick in ticks),
        )


def _forming(server: PlantServer, slowdown: float, per_ms: float, most: int) -> float:
    """Returns the batch that gathers while the previous one is computed."""
    slower = server.clocked * slowdown + 1 - server.clocked
    fixed = per_ms * server.first_ms * server.fixed * slower
    growing = per_ms * server.first_ms * (1 - server.fixed) * slower
    return min(float(most), max(1.0, fixed / (1 - growing))) if growing < 1 else float(most)

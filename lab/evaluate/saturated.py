"""A GPU whose instances always have a full batch waiting: the paper's load, in which each method serves what it can.

The time of a batch is the profile's, between batches by interpolation and beyond the largest in proportion, among
neighbours and at the clock as plans are judged. Power grows with batches, which profiles do not say: up to 64 requests
for a whole GPU, where GoogLeNet's 152 W are printed. Four GoogLeNets at 25 % and batch 16 draw 156 W, as printed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random

from agents.contract.assignments import Frame
from agents.policy.power.periods import GpuPeriod, InstancePeriod, PowerState
from agents.policy.power.settings import PowerSettings
from lab.evaluate.morak.laws import MOST_BATCH, NodeMethod
from solvers.planning.judge.readings import value_at
from solvers.planning.problem import GpuType, Instance, Problem, Profile

FULL_BATCH = 64  # of a whole GPU: larger ones draw no more
FILL_EXPONENT = 0.2  # of the power plant's equations (lab.power.plant)
FOUR_TOGETHER = (156.0 - 15.0) / (152.0 - 15.0)  # P_int(4) from the printed watts
NOISE_SHARE = 0.01  # of readings, in both directions
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SaturatedPeriod:
    """One second of a GPU: requests, true watts, and true times of batches by instance."""

    requests: float
    watts: float
    times_ms: Mapping[str, float]
    clock_mhz: int


@dataclass(slots=True)
class SaturatedGpu:
    """A GPU, its instances and the law that sets their batches and its clock."""

    kind: GpuType
    seats: Sequence[Instance]
    profiles: Mapping[str, Profile]  # by service
    slo_ms: Mapping[str, float]
    method: NodeMethod
    random: Random
    clock_mhz: int = 0
    batches: dict[str, int] = field(default_factory=dict)
    _frames: dict[str, Frame] = field(default_factory=dict)
    _state: PowerState = field(default_factory=PowerState)
    _second: int = 0

    def __post_init__(self) -> None:
        clocks = [round(clock) for clock in self.kind.clocks_mhz]
        planned = round(self.seats[0].clock_mhz) if self.seats else clocks[-1]
        self.clock_mhz = clocks[0] if self.method.starts_slow else planned
        for seat in self.seats:
            start, most = self.method.batch or seat.batch, MOST_BATCH // len(self.seats)
            self.batches[seat.id] = start
            self._frames[seat.id] = Frame(float(start), 1.0, float(max(start, most)))  # all of a GPU: what was measured

    def period(self, settings: PowerSettings) -> SaturatedPeriod:
        """Runs one second, then the law."""
        times = {seat.id: self._time_ms(seat) for seat in self.seats}
        drawn = self._watts()
        served = sum(1000.0 * self.batches[name] / time for name, time in times.items())
        found = SaturatedPeriod(served, drawn, times, self.clock_mhz)
        move = self.method.law(self._state, self._observed(times, drawn), settings)
        self._state = move.state
        self.clock_mhz = move.clock_mhz or self.clock_mhz
        self.batches |= move.batches
        self._second += 1
        return found

    def _time_ms(self, seat: Instance) -> float:
        profile = self.profiles[seat.service]
        others = sum(
            value_at(self.profiles[other.service].demand.whole_pressure, other.sm_percent)
            for other in self.seats
            if other.id != seat.id
        )
        alone = batch_ms(profile, self.batches[seat.id], seat.sm_percent)
        slower: float = (self.kind.top_clock_mhz / self.clock_mhz) ** profile.demand.clock_exponent
        return alone * (1 + profile.demand.most_sensitivity * others) * slower

    def _watts(self) -> float:
        together = 1 + (FOUR_TOGETHER - 1) * (len(self.seats) - 1) / 3
        total = 0.0
        for seat in self.seats:
            demand = self.profiles[seat.service].demand
            full = min(1.0, self.batches[seat.id] * 100 / seat.sm_percent / FULL_BATCH)
            clock = (self.clock_mhz / self.kind.top_clock_mhz) ** demand.power_exponent
            total += value_at(demand.power_w, seat.sm_percent) * clock * full**FILL_EXPONENT
        return self.kind.idle_w + total * together

    def _observed(self, times: Mapping[str, float], drawn: float) -> GpuPeriod:
        def read(value: float) -> float:
            return value * (1 + self.random.uniform(-NOISE_SHARE, NOISE_SHARE))

        clocks = [round(clock) for clock in self.kind.clocks_mhz]
        watts = read(drawn)
        return GpuPeriod(
            index=0,
            at=BEGAN + timedelta(seconds=self._second),
            peak_w=watts,
            mean_w=watts,
            cap_w=self.kind.max_w,
            idle_w=self.kind.idle_w,
            clock_mhz=self.clock_mhz,
            frame=Frame(float(self._planned_mhz), float(clocks[0]), float(clocks[-1])),
            clocks_mhz=tuple(clocks),
            running_mhz=self.clock_mhz,
            instances=tuple(
                InstancePeriod(
                    id=seat.id,
                    batch=self.batches[seat.id],
                    frame=self._frames[seat.id],
                    latency_ms=read(times[seat.id]),
                    slo_ms=self.slo_ms[seat.service],
                    queue=float(self.batches[seat.id]),
                    batch_mean=float(self.batches[seat.id]),
                    busy=1.0,
                )
                for seat in self.seats
            ),
        )

    @property
    def _planned_mhz(self) -> int:
        return round(self.kind.clocks_mhz[0]) if self.method.starts_slow else round(self.seats[0].clock_mhz)


def batch_ms(profile: Profile, batch: int, sm_percent: float) -> float:
    """Returns the time of any batch alone at the highest clock."""
    known = sorted(profile.latency_ms)
    at = bisect_left(known, batch)
    if at == len(known):
        return value_at(profile.latency_ms[known[-1]], sm_percent) * batch / known[-1]
    high = value_at(profile.latency_ms[known[at]], sm_percent)
    if known[at] == batch or at == 0:
        return high
    low = value_at(profile.latency_ms[known[at - 1]], sm_percent)
    return low + (high - low) * (batch - known[at - 1]) / (known[at] - known[at - 1])


def saturated_gpus(
    problem: Problem, seats: Sequence[Instance], method: NodeMethod, seed: int
) -> list[SaturatedGpu]:  # fmt: skip
    """Returns the GPUs in use; each has readings of its own."""
    places = sorted({seat.place for seat in seats})
    slo_ms = {service.name: service.slo_ms for service in problem.services.values()}
    found = []
    for node, gpu in places:
        own = [seat for seat in seats if seat.place == (node, gpu)]
        profiles = {
            seat.service: profile for seat in own if (profile := problem.profile(seat.service, seat.variant, node))
        }
        random = Random(f"{seed} {node} {gpu}")  # noqa: S311
        found.append(SaturatedGpu(problem.type_of(node), own, profiles, slo_ms, method, random))
    return found

"""Lays a fleet out as InSS's problem (1): services become models, their profiles its model of latency (I1).

InSS puts each model on one GPU. Ours: a service that needs more is divided into equal parts, on a GPU each. What a
profile states as pressure and sensitivity are InSS's L2 use and its coefficient; transfer and scheduling are part of
the measured times. A service takes the variant that carries most, since InSS knows no variants.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from solvers.inss.fleet.promises import most_exec_ms, usable
from solvers.inss.throughput import Speed, ThroughputGpuType, ThroughputModel, ThroughputProblem, ThroughputShape
from solvers.planning.fleet.grids import accepted_rate
from solvers.planning.fleet.offers import GpuPool, read_offers
from solvers.planning.fleet.rooms import FleetRooms
from solvers.planning.judge.readings import value_at
from solvers.planning.problem import Problem, Profile, Service

SM_STEPS = tuple(range(10, 101, 10))
PENALTY = 100.0  # omega of reward (3)
FILLED_SHARE = 0.9  # of what a whole GPU carries: a part that needs more is divided


@dataclass(frozen=True, slots=True)
class PoolSpeeds:
    """A service's variant, with its profile in each pool that may run it."""

    variant: str
    profiles: Mapping[GpuPool, Profile]
    most_per_second: float  # on a whole GPU of the best pool


class FleetLayout:
    """The pools of a fleet with their GPUs without jobs, and how fast each service is there.

    InSS knows no training beside inference.
    """

    def __init__(self, rooms: FleetRooms) -> None:
        self.problem, self.rooms = rooms.problem, rooms
        self.pools = {f"{pool.gpu_type} {number}": pool for number, pool in enumerate(rooms.pools)}
        self.places = {name: rooms.idle_in(pool) for name, pool in self.pools.items()}
        found = {name: _speeds(self.problem, service, rooms.pools) for name, service in self.problem.services.items()}
        self.speeds = {name: speeds for name, speeds in found.items() if speeds}

    def least_parts(self, name: str) -> int:
        """Returns the number of GPUs that a service needs at least."""
        service = self.problem.services[name]
        needed = ceil(service.rate_per_second / (FILLED_SHARE * self.speeds[name].most_per_second) - 1e-9)
        return max(1, service.min_instances, min(needed, self.most_parts(name)))

    def most_parts(self, name: str) -> int:
        """Returns the number of GPUs that may run a service."""
        return sum(len(self.places[key]) for key, pool in self.pools.items() if pool in self.speeds[name].profiles)

    def pose_throughput(self, parts: Mapping[str, int]) -> ThroughputProblem:
        """Returns InSS's problem, with so many parts of each service."""
        kinds = tuple(
            ThroughputGpuType(key, self.problem.gpu_types[pool.gpu_type].memory_gib) for key, pool in self.pools.items()
        )
        models = tuple(model for name, count in sorted(parts.items()) for model in self._models(name, count))
        return ThroughputProblem(
            models, kinds, {key: len(places) for key, places in self.places.items()}, SM_STEPS, PENALTY
        )

    def _models(self, name: str, count: int) -> Iterator[ThroughputModel]:
        service, speeds = self.problem.services[name], self.speeds[name]
        part = replace(service, rate_per_second=service.rate_per_second / count)
        batches = sorted({batch for profile in speeds.profiles.values() for batch in profile.latency_ms})
        shapes = {batch: self._shape(part, speeds, batch, batches[0]) for batch in batches}
        norm = max(
            batches[0] * 1000 / profile.latency_ms[batches[0]][-1][1]
            for profile in speeds.profiles.values()
            if batches[0] in profile.latency_ms
        )
        by_type = {
            key: self._speed(speeds.profiles[pool]) for key, pool in self.pools.items() if pool in speeds.profiles
        }
        for number in range(count):
            yield ThroughputModel(
                f"{name} {number}", part.rate_per_second, shapes, by_type, norm, service.model, service.is_dedicated
            )

    def _shape(self, part: Service, speeds: PoolSpeeds, batch: int, least_batch: int) -> ThroughputShape:
        memory_gib = max(
            profile.memory_gib[batch] for profile in speeds.profiles.values() if batch in profile.memory_gib
        )
        longest = most_exec_ms(self.problem, part, batch, least_batch)
        return ThroughputShape(memory_gib, longest, usable(self.problem, part, batch))

    def _speed(self, profile: Profile) -> Speed:
        demand, policy = profile.demand, self.problem.policy
        run_ms = {}
        for batch, curve in profile.latency_ms.items():
            for step in SM_STEPS:
                if step >= curve[0][0]:
                    slower = policy.share_pressure * (100 - step) / 100 if policy.pricing == "share" else 0.0
                    run_ms[batch, step] = value_at(curve, step) * (1 + demand.most_sensitivity * slower)
        shares = np.array([sm / 100 for sm, _ in demand.whole_pressure])
        uses = np.array([use for _, use in demand.whole_pressure])
        slope, base = np.polyfit(shares, uses, 1) if len(shares) > 1 else (0.0, uses[0])
        base, slope = max(0.0, float(base)), float(slope)
        return Speed(run_ms, max(slope, -base), base, demand.most_sensitivity)


def _speeds(problem: Problem, service: Service, pools: Sequence[GpuPool]) -> PoolSpeeds | None:
    """Returns the variant that carries most on a whole GPU, or None if none keeps the SLO anywhere."""
    offers = read_offers(problem)
    runnable = {pool: {profile.variant: profile for profile in offers.find_profiles(service, pool)} for pool in pools}
    best: PoolSpeeds | None = None
    for variant in service.variants:
        profiles, most = {}, 0.0
        for pool, known in runnable.items():
            profile = known.get(variant)
            if profile is None:
                continue
            carried = max(
                accepted_rate(problem.policy, service, batch, curve[-1][1])
                for batch, curve in profile.latency_ms.items()
            )
            if carried > 0:
                profiles[pool], most = profile, max(most, carried)
        if profiles and (best is None or most > best.most_per_second):
            best = PoolSpeeds(variant, profiles, most)
    return best

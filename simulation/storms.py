"""Storms of reclaims: a cloud takes a share of the spot nodes of one place within a minute, and rents none there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from app.manifests.model import Kind
from simulation.fleet.history import Mark, count_attained_shares
from simulation.limits import STORM_SECONDS
from simulation.run import Simulation
from simulation.spot import SpotCloud, count_short, list_spot_nodes

NOTICES_SECONDS = 60.0  # in which all notices of a storm come


@dataclass(frozen=True, slots=True)
class StormOrder:
    """How often storms come, and the share of a place's spot nodes that each takes."""

    every_seconds: float
    share: float


@dataclass(slots=True)
class SpotStorm:
    """A storm over one place: the spot nodes of one GPU type and region."""

    place: str
    until: float
    before: Mark
    taken_before: int  # machines
    notices: dict[str, float]  # by node, when its notice comes
    gone: list[str] = field(default_factory=list)  # declared nodes, which come back after it


class StormRounds:
    """Brings one storm after the other, drawn by a seed. `tick` does what is due by the simulation's clock."""

    def __init__(self, simulation: Simulation, order: StormOrder, seed: int) -> None:
        self._simulation, self._order = simulation, order
        self._draw = Random(seed)  # noqa: S311 (a load, not a secret)
        self._cloud = SpotCloud(simulation)
        self._next = order.every_seconds
        self._storm: SpotStorm | None = None
        self._shares: list[Mapping[str, float]] = []  # by storm that is over: of each service, within its SLO
        self._places: list[str] = []
        self._taken: list[int] = []  # machines, by storm that is over

    def tick(self) -> None:
        now = self._simulation.clock.seconds
        back = self._cloud.tick()
        if self._storm is None and now >= self._next:
            self._next += self._order.every_seconds
            self._storm = self._begin(now)
        storm = self._storm
        if storm is None:
            return
        storm.gone += back
        for node in [node for node, at in storm.notices.items() if at <= now]:
            del storm.notices[node]
            if node in list_spot_nodes(self._simulation):
                self._cloud.give_notice(node)
        if now >= storm.until:
            self._end(storm)

    def figures(self, slos: Mapping[str, float]) -> dict[str, Any]:
        """Returns how the services came through the storms that are over; `slos` has the share each promises."""
        services = {
            name: {
                "kept": sum(shares.get(name, 1.0) >= promised for shares in self._shares),
                "worst": round(min(shares.get(name, 1.0) for shares in self._shares), 6) if self._shares else None,
            }
            for name, promised in sorted(slos.items())
        }
        return {
            "count": len(self._shares), "taken": self._cloud.taken, "takenByStorm": self._taken,
            "emptied": self._cloud.emptied,
            "short": count_short(self._simulation), "refusals": self._simulation.cloud.refusals,
            "places": {place: self._places.count(place) for place in sorted(set(self._places))},
            "services": services,
        }  # fmt: skip

    def _begin(self, now: float) -> SpotStorm | None:
        """Draws a place that has spot nodes, and those of them that it loses."""
        places: dict[str, list[str]] = {}
        for node in list_spot_nodes(self._simulation):
            places.setdefault(name_place(self._simulation, node), []).append(node)
        if not places:
            return None
        place = self._draw.choice(sorted(places))
        there = places[place]
        taken = self._draw.sample(there, max(1, round(self._order.share * len(there))))
        notices = {node: now + self._draw.uniform(0.0, NOTICES_SECONDS) for node in taken}
        self._places.append(place)
        self._simulation.cloud.short_pools = list_pools(self._simulation, place)
        before = self._simulation.history.mark(self._simulation.fleet)
        return SpotStorm(place, now + STORM_SECONDS, before, self._cloud.taken, notices)

    def _end(self, storm: SpotStorm) -> None:
        after = self._simulation.history.mark(self._simulation.fleet)
        self._shares.append(count_attained_shares(storm.before, after))
        self._taken.append(self._cloud.taken - storm.taken_before)
        self._simulation.cloud.short_pools = frozenset()
        for node in storm.gone:
            self._cloud.give_back(node)
        self._storm = None


def name_place(simulation: Simulation, node: str) -> str:
    """Returns what a storm strikes: the node's GPU type and region, whether it was declared or rented."""
    known = simulation.fleet.truth.problem.nodes[node]
    return f"{known.gpu_type} in {known.region}"


def list_pools(simulation: Simulation, place: str) -> frozenset[str]:
    """Returns the spot pools that a storm over the place leaves without machines."""
    return frozenset(
        pool.name
        for pool in simulation.cloud.world.of(Kind.POOL)
        if pool.spec.get("purchase") == "spot"
        and place == f"{pool.spec['gpuType']} in {pool.spec.get('region', 'default')}"
    )

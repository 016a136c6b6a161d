"""What rented nodes cost in a run, by pool, beside hindsight and all that the pool may have, kept all the time."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from math import ceil

from app.control.rent.question import RentalPool, make_pool
from app.manifests.model import Kind
from simulation.run import Simulation
from solvers.renting import find_hindsight

SLOT_SECONDS = 300.0  # of hindsight, which knows how many nodes each slot needed


@dataclass(slots=True)
class RentedUse:
    """Counts, look by look, on how many nodes of each pool something runs."""

    simulation: Simulation
    began: float
    _needs: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))  # by pool, the most of each slot
    _busy_seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _looked_at: float | None = None

    def look(self) -> None:
        """Takes a look: what runs now has run since the last one."""
        now = self.simulation.clock.seconds
        seconds = now - (self._looked_at if self._looked_at is not None else now)
        slot = int((now - self.began) // SLOT_SECONDS)
        for name in self._pools():
            nodes = {m.node for m in self.simulation.cloud.machines.values() if m.pool == name and m.is_up}
            busy = sum(
                bool(self.simulation.fleet.nodes[node].alive()) for node in nodes & self.simulation.fleet.nodes.keys()
            )
            needs = self._needs[name]
            needs += [0] * (slot + 1 - len(needs))
            needs[slot] = max(needs[slot], busy)
            self._busy_seconds[name] += busy * seconds
        self._looked_at = now

    def figures(self) -> dict[str, dict[str, float | None]]:
        """Returns each pool's figures since the measurement began; perHour counts what a term has yet to cost."""
        until = self.simulation.clock.seconds
        hours = (until - self.began) / 3600
        found: dict[str, dict[str, float | None]] = {}
        for name, pool in self._pools().items():
            mine = [machine for machine in self.simulation.cloud.machines.values() if machine.pool == name]
            seconds = sum(machine.paid_seconds(self.began, until) for machine in mine)
            price = pool.terms.price_per_hour
            least = self._find_hindsight(name, pool)
            found[name] = {
                "orders": len(mine),
                "givenBack": sum(machine.paid_until is not None for machine in mine),
                "nodeHours": round(seconds / 3600, 3),
                "wastedMinutes": round((seconds - self._busy_seconds[name]) / 60, 1),
                "perHour": round(price * seconds / 3600 / hours, 6) if hours else 0.0,
                "hindsightPerHour": None if least is None else round(least / hours, 6),
                "maximumPerHour": round(price * pool.most, 6),
            }
        return found

    def _find_hindsight(self, name: str, pool: RentalPool) -> float | None:
        terms, needs = pool.terms, self._needs[name]
        best = find_hindsight(
            needs, terms.price_per_hour * SLOT_SECONDS / 3600, ceil(terms.entry_seconds / SLOT_SECONDS)
        )
        return None if best is None else best.cost

    def _pools(self) -> dict[str, RentalPool]:
        world = self.simulation.cloud.world
        types = {manifest.name: manifest.spec for manifest in world.of(Kind.GPU_TYPE)}
        return {
            manifest.name: make_pool(manifest.name, manifest.spec, types[str(manifest.spec["gpuType"])])
            for manifest in world.of(Kind.POOL)
        }

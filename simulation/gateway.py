"""The gateway of a simulated fleet: what it has counted of every service, said once a second as a sidecar does."""

from __future__ import annotations

from agents.contract import GatewayCounts, ServiceCounts
from app.store import gateways
from app.store.database import Database
from simulation.fleet import Fleet, Total

SAY_SECONDS = 1.0


class Gateway:
    """Counts since it began; `restart` begins anew, `away` says nothing."""

    def __init__(self, fleet: Fleet, database: Database, name: str = "simulated") -> None:
        self.fleet = fleet
        self.name = name
        self.away = False
        self._database = database
        self._began = self._birth()
        self._sequence = int(fleet.clock.now().timestamp() * 1000)
        self._zero: dict[str, Total] = {}
        self._due = float("-inf")

    def say(self) -> bool:
        """Once a second; whether it was time."""
        now = self.fleet.clock.seconds
        if self.away or now < self._due:
            return False
        self._due = now + SAY_SECONDS
        self._sequence += 1
        told = GatewayCounts(began=self._began, sequence=self._sequence, services=tuple(self._services()))
        kept = self._database.repeatable(lambda connection: gateways.keep(connection, self.name, told))
        self._sequence = max(self._sequence, kept)
        return True

    def restart(self) -> None:
        """A new process: it has counted nothing yet."""
        self._zero = {name: total.copied() for name, total in self.fleet.services.items()}
        self._began = self._birth()

    def _birth(self) -> str:
        return f"{self.name}-{self.fleet.clock.seconds:.3f}"

    def _services(self) -> list[ServiceCounts]:
        found = []
        for name, total in self.fleet.services.items():
            zero = self._zero.get(name, Total())
            counts = [int(count) for count in total.counts - zero.counts]
            while counts and not counts[-1]:
                counts.pop()
            requests = total.answered + total.errors - zero.answered - zero.errors
            found.append(
                ServiceCounts(name, requests=requests, errors=total.errors - zero.errors, latency_counts=tuple(counts))
            )
        return found

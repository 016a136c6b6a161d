"""A cloud that takes spot nodes back: it gives notice, takes the machine away, and later starts another."""

from __future__ import annotations

from datetime import timedelta
from random import Random

from app.control.domain.events import Reason
from app.store.world import events
from app.store.world.events import EventFilter
from simulation.run import Simulation

NOTICE_SECONDS = 120.0
GONE_SECONDS = 600.0  # until another machine comes under a node's name
MOST_EVENTS = 100_000


class SpotCloud:
    """Reclaims nodes of a simulation. `tick` does what is due by its clock."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._due: dict[str, float] = {}  # by node: when its machine goes
        self.emptied = 0  # machines that served nothing any more when they went

    def give_notice(self, node: str, seconds: float = NOTICE_SECONDS) -> None:
        """Tells the node's agent that the machine goes in so many seconds."""
        machine = self._simulation.fleet.nodes[node]
        machine.reclaim_at = machine.date() + timedelta(seconds=seconds)
        machine.news = True
        self._due[node] = self._simulation.clock.seconds + seconds

    def tick(self) -> list[str]:
        """Takes machines away that are due, and returns their nodes."""
        due = [node for node, at in self._due.items() if at <= self._simulation.clock.seconds]
        for node in due:
            del self._due[node]
            machine = self._simulation.fleet.nodes[node]
            self.emptied += not machine.serving()
            machine.switch_off()
            self._simulation.post.silence([node])
        return due

    def give_back(self, node: str) -> None:
        """Starts another machine under the node's name, without a notice."""
        self._due.pop(node, None)
        machine = self._simulation.fleet.nodes[node]
        machine.reclaim_at = None
        machine.switch_on()
        self._simulation.post.silence([node], "as usual")


class ReclaimRounds:
    """Reclaims one spot node after the other, drawn by a seed; another comes later. `tick` does what is due."""

    def __init__(self, simulation: Simulation, every_seconds: float, seed: int) -> None:
        self._simulation, self._every = simulation, every_seconds
        self._draw = Random(seed)  # noqa: S311 (a load, not a secret)
        self._cloud = SpotCloud(simulation)
        self._next, self._back = every_seconds, dict[str, float]()
        self.notices = 0

    def tick(self) -> None:
        now = self._simulation.clock.seconds
        for node in self._cloud.tick():
            self._back[node] = now + GONE_SECONDS
        for node in [node for node, at in self._back.items() if at <= now]:
            del self._back[node]
            self._cloud.give_back(node)
        if now >= self._next:
            self._next += self._every
            nodes = self._simulation.fleet.truth.problem.nodes.values()
            machines = self._simulation.fleet.nodes
            there = sorted(
                node.name
                for node in nodes
                if node.purchase == "spot" and node.name not in self._back and machines[node.name].reclaim_at is None
            )
            if there:
                self._cloud.give_notice(self._draw.choice(there))
                self.notices += 1

    def figures(self) -> dict[str, int]:
        """Returns how many notices there were, and how many machines had nothing to serve when they went."""
        short = EventFilter(reasons=[Reason.RECLAIM_SHORT.value])
        found = self._simulation.database.read(lambda connection: events.recent(connection, short, MOST_EVENTS))
        return {"notices": self.notices, "emptied": self._cloud.emptied, "short": len(found)}

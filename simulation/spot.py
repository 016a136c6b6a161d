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
        self.taken = 0  # machines
        self.emptied = 0  # machines that served nothing any more when they went

    def give_notice(self, node: str, seconds: float = NOTICE_SECONDS) -> None:
        """Tells the node's agent that the machine goes in so many seconds."""
        machine = self._simulation.fleet.nodes[node]
        machine.reclaim_at = machine.date() + timedelta(seconds=seconds)
        machine.news = True
        self._due[node] = self._simulation.clock.seconds + seconds

    def tick(self) -> list[str]:
        """Takes machines away that are due, and returns the nodes that come back: those that no pool has rented."""
        simulation, back = self._simulation, list[str]()
        for node in [node for node, at in self._due.items() if at <= simulation.clock.seconds]:
            del self._due[node]
            machine = simulation.fleet.nodes.get(node)
            if machine is None or machine.reclaim_at is None:
                continue  # it was given back meanwhile
            self.taken += 1
            self.emptied += not machine.serving()
            if simulation.cloud.take_back(node):
                continue
            machine.switch_off()
            simulation.post.silence([node])
            back.append(node)
        return back

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
            if there := list_spot_nodes(self._simulation):
                self._cloud.give_notice(self._draw.choice(there))
                self.notices += 1

    def figures(self) -> dict[str, int]:
        """Returns how many notices there were, and how many machines had nothing to serve when they went."""
        return {"notices": self.notices, "emptied": self._cloud.emptied, "short": count_short(self._simulation)}


def list_spot_nodes(simulation: Simulation) -> list[str]:
    """Returns the spot nodes whose machines are there and under no notice, by name."""
    machines = simulation.fleet.nodes
    return sorted(
        node.name
        for node in simulation.fleet.truth.problem.nodes.values()
        if node.purchase == "spot"
        and node.name in machines
        and not machines[node.name].is_off
        and machines[node.name].reclaim_at is None
    )


def count_short(simulation: Simulation) -> int:
    """Counts the events that named a service which loses capacity as a node is reclaimed."""
    short = EventFilter(reasons=[Reason.RECLAIM_SHORT.value])
    return len(simulation.database.read(lambda connection: events.recent(connection, short, MOST_EVENTS)))

"""A cloud that takes spot nodes back: it gives notice, takes the machine away, and later starts another."""

from __future__ import annotations

from datetime import timedelta

from simulation.run import Simulation

NOTICE_SECONDS = 120.0


class SpotCloud:
    """Reclaims nodes of a simulation. `tick` does what is due by its clock."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._due: dict[str, float] = {}  # by node: when its machine goes

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
            self._simulation.fleet.nodes[node].switch_off()
            self._simulation.post.silence([node])
        return due

    def give_back(self, node: str) -> None:
        """Starts another machine under the node's name, without a notice."""
        self._due.pop(node, None)
        machine = self._simulation.fleet.nodes[node]
        machine.reclaim_at = None
        machine.switch_on()
        self._simulation.post.silence([node], "as usual")

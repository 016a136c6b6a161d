"""Groups of nodes alike, and the whole GPUs of each that instances of language models may hold."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from solvers.planning.fleet.rooms import FleetRooms
from solvers.planning.judge.tolerances import is_at_most
from solvers.planning.problem import Node, Place, Problem


@dataclass(frozen=True, slots=True)
class LinkedNodes:
    """Nodes with the same GPUs, links, caps of watts, cores, memory, price and rules."""

    nodes: tuple[Node, ...]
    links: tuple[tuple[int, ...], ...]  # of each node: the usable GPUs by group of linked ones
    caps_w: tuple[tuple[float, ...], ...] = ()  # of the same GPUs; empty: as the type says

    @property
    def node(self) -> Node:
        return self.nodes[0]

    @property
    def gpus(self) -> int:
        """Returns how many GPUs of a node may be used."""
        return sum(map(len, self.links))

    def slots(self, degree: int, over_w: float = 0.0) -> int:
        """Returns how many instances on so many GPUs fit onto a node, if all are alike and need more than `over_w`."""
        if not self.caps_w:
            return sum(len(link) // degree for link in self.links)
        return sum(sum(cap_w > over_w for cap_w in link) // degree for link in self.caps_w)

    def slots_for(self, degree: int, watts: float) -> int:
        """Returns how many instances on so many GPUs fit onto a node, if each of these draws so many watts."""
        if not self.caps_w:
            return self.slots(degree)
        return sum(sum(is_at_most(watts, cap_w) for cap_w in link) // degree for link in self.caps_w)


def rooms_beside_jobs(problem: Problem) -> FleetRooms:
    """Returns the fleet with nothing on it but the running jobs that must stay."""
    running = problem.state.jobs if problem.state else ()
    staying = [job for job in running if not problem.jobs[job.job].is_preemptible and job.node in problem.nodes]
    return FleetRooms(problem, (), staying)


def node_groups(problem: Problem) -> list[LinkedNodes]:
    """Returns the nodes by group; a GPU that a running job must keep is left out."""
    rooms = rooms_beside_jobs(problem)
    alike: dict[tuple[object, ...], list[Node]] = defaultdict(list)
    for _, node in sorted(problem.nodes.items()):
        links = tuple(rooms.idle_links(node))
        if links:
            alike[(*_kind(node, links), _caps(node, links))].append(node)
    found = [(tuple(nodes), tuple(rooms.idle_links(nodes[0]))) for nodes in alike.values()]
    return [LinkedNodes(nodes, links, _caps(nodes[0], links)) for nodes, links in found]


def _caps(node: Node, links: tuple[tuple[int, ...], ...]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(node.caps_w[index] for index in link) for link in links) if node.caps_w else ()


def busy_places(problem: Problem) -> Counter[Place]:
    """Returns how many instances and jobs run on each GPU: what is new starts beside them where it can."""
    state = problem.state
    found: Counter[Place] = Counter()
    if state:
        found.update(place for line in state.running for place in line.places)
        found.update(place for placed in state.jobs for place in placed.places)
    return found


def _kind(node: Node, links: tuple[tuple[int, ...], ...]) -> tuple[object, ...]:
    return (
        node.gpu_type, tuple(map(len, links)), node.gpu_count, node.cpu_cores, node.host_memory_gib,
        node.price_per_hour, node.purchase, node.pricing, node.region, node.templates, node.cell,
    )  # fmt: skip

"""The cloud of a simulated fleet: machines of pools come up after their start and are switched off when given back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.control.rent.calls import HookOrder
from app.control.rent.states import HookAnswer
from app.manifests.model import Key, Kind, Manifest
from app.manifests.offline import DeclaredFiles
from simulation.fleet.fleet import SimulatedFleet
from simulation.fleet.messages import Post
from simulation.fleet_truth import FleetTruth

MakeTruth = Callable[[DeclaredFiles], FleetTruth]


@dataclass(slots=True)
class RentedMachine:
    """A machine that was rented under a key, and the seconds in which it is paid for."""

    key: str
    pool: str
    node: str
    spec: Mapping[str, object]
    paid_from: float
    up_at: float
    paid_until: float | None = None
    is_up: bool = False

    def paid_seconds(self, since: float, until: float) -> float:
        """Returns for how long of this time it is paid for."""
        ended = until if self.paid_until is None else min(self.paid_until, until)
        return max(0.0, ended - max(self.paid_from, since))


class SimulatedCloud:
    """Rents at once and in any number, but of pools that are short; the same key never rents twice."""

    def __init__(self, world: DeclaredFiles, make_truth: MakeTruth) -> None:
        self.world, self._make_truth = world, make_truth
        self.machines: dict[str, RentedMachine] = {}  # by key
        self.short_pools: frozenset[str] = frozenset()  # pools that have no machine left to rent
        self.refusals = 0
        self._fleet: SimulatedFleet | None = None
        self._post: Post | None = None

    def join(self, fleet: SimulatedFleet, post: Post) -> None:
        """Names the fleet that its machines join."""
        self._fleet, self._post = fleet, post

    def call(self, order: HookOrder) -> HookAnswer:
        assert self._fleet is not None
        now = self._fleet.clock.seconds
        machine = self.machines.get(order.key)
        if order.verb == "return":
            if machine is not None and machine.paid_until is None:
                pool = self._pool(machine.pool)
                least = machine.paid_from + pool["startSeconds"] + 60 * pool["minimumMinutes"]
                machine.paid_until, machine.is_up = max(now, least), False
                self._leave(machine)
            return HookAnswer("returned")
        if machine is None and order.pool in self.short_pools:
            self.refusals += 1
            return HookAnswer("refused", f"pool {order.pool} has no machine left: its spot nodes are being reclaimed")
        if machine is None:
            starts = self._pool(order.pool)["startSeconds"]
            self.machines[order.key] = RentedMachine(order.key, order.pool, order.node, order.spec, now, now + starts)
        return HookAnswer("accepted")

    def take_back(self, node: str) -> bool:
        """Takes a rented machine away for good; returns False if the node was not rented."""
        machine = next((found for found in self.machines.values() if found.node == node and found.is_up), None)
        if machine is None:
            return False
        assert self._fleet is not None
        machine.paid_until, machine.is_up = self._fleet.clock.seconds, False
        self._leave(machine)
        return True

    def tick(self) -> None:
        """Brings up the machines whose start is over."""
        assert self._fleet is not None and self._post is not None
        for machine in self.machines.values():
            if not machine.is_up and machine.paid_until is None and self._fleet.clock.seconds >= machine.up_at:
                machine.is_up = True
                manifest = Manifest(Kind.NODE, "", machine.node, dict(machine.spec))
                self._follow({**self.world.manifests, manifest.key: manifest})
                self._fleet.add_machine(machine.node)
                self._post.connect(machine.node)

    def _leave(self, machine: RentedMachine) -> None:
        assert self._fleet is not None and self._post is not None
        if machine.node in self._fleet.nodes:
            self._fleet.nodes[machine.node].switch_off()
        self._post.disconnect(machine.node)
        gone = Key(Kind.NODE, "", machine.node)
        self._follow({key: manifest for key, manifest in self.world.manifests.items() if key != gone})

    def _follow(self, manifests: Mapping[Key, Manifest]) -> None:
        assert self._fleet is not None
        self.world = DeclaredFiles(dict(manifests))
        self._fleet.follow(self._make_truth(self.world))

    def _pool(self, name: str) -> dict[str, float]:
        spec = self.world.manifests[Key(Kind.POOL, "", name)].spec
        return {"startSeconds": spec.get("startSeconds", 300), "minimumMinutes": spec.get("minimumMinutes", 60)}

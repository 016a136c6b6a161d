"""Counts how much of each service is carried now, and what may be taken away from it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import reduce
from operator import add

from agents.contract.assignments import AssignedInstance
from app.control.domain.desired import Desired, FleetStatus
from app.control.rollout.rules import PendingStep, RolloutRules

TINY = 1e-6  # of a rate

Counted = tuple[float, int, float | None]  # a service's rate and copies, and the rate of one of them, if it serves


def serves(instance: AssignedInstance, node: str, observed: FleetStatus) -> bool:
    """Returns whether it serves, as far as its node and its gateway have reported."""
    status = observed.instances.get(instance.id)
    return (
        status is not None and status.stage == "ready" and status.routed and node not in observed.silent | observed.lost
    )


def find_served_rate(
    instance: AssignedInstance, node: str, pending: PendingStep | None, observed: FleetStatus
) -> float | None:
    """Returns the rate it carries, during a hand-over the smaller of both copies; None while it does not serve."""
    if not serves(instance, node, observed):
        return None
    if pending is None:
        return instance.rate_per_second
    if pending.before is None or pending.is_new:
        return None
    return min(instance.rate_per_second, pending.before.rate_per_second)


class CapacityLedger:
    """The capacity that services need, the capacity they have, and how changes reduce it."""

    def __init__(
        self, services: Collection[str], assigned: Desired, target: Desired, pending: Mapping[str, PendingStep],
        observed: FleetStatus, rules: RolloutRules,
    ) -> None:  # fmt: skip
        self.now: dict[str, float | None] = {}  # by instance
        self._rate = dict.fromkeys(services, 0.0)
        self._count = dict.fromkeys(services, 0)
        self._need = dict.fromkeys(services, 0.0)
        counts = dict.fromkeys(services, 0)
        for node, wanted in assigned.items():
            for instance in wanted.instances:
                owner = instance.owner
                if instance.service and owner in self._rate:
                    found = self.now[instance.id] = find_served_rate(instance, node, pending.get(instance.id), observed)
                    if found is not None:
                        self._rate[owner] += found
                        self._count[owner] += 1
        for wanted in target.values():
            for instance in wanted.instances:
                owner = instance.owner
                if instance.service and owner in self._need:
                    self._need[owner] += instance.rate_per_second
                    counts[owner] += 1
        self._least = {name: min(rules.min_instances.get(name, 1), count) for name, count in counts.items()}

    def spares(self, service: str, rate: float, instances: int) -> bool:
        """Returns whether the service can lose so much and still serve what the plan serves."""
        need = self._need[service]
        enough = rate <= TINY * need or self._rate[service] - rate >= need * (1 - TINY) - TINY
        return enough and (not instances or self._count[service] - instances >= self._least[service])

    def could_spare(self, service: str, rate: float, gained: float) -> bool:
        """Returns whether `spares` can become true of the rate once the service has gained so much.

        It allows for twice the tolerance, as sums in another order differ in their last digits.
        """
        need = self._need[service]
        return rate <= TINY * need or self._rate[service] + gained - rate >= need * (1 - 2 * TINY) - 2 * TINY

    def take(self, service: str, rate: float, instances: int) -> None:
        """Subtracts so much."""
        self._rate[service] -= rate
        self._count[service] -= instances

    def carry(self, service: str, instance: str, rate: float) -> None:
        """Notes that an instance serves so much."""
        before = self.now.get(instance)
        self._rate[service] += rate - (before or 0.0)
        self._count[service] += before is None
        self.now[instance] = rate

    def recount(self, service: str, instance: str, rates: Mapping[str, float], *, is_there: bool) -> None:
        """Notes that an instance serves or does not, and the rates of all copies of its service by now.

        They are added up one after the other, as at first: another order would change the last digits.
        """
        self._rate[service] = reduce(add, rates.values(), 0.0)
        self._count[service] += is_there - (self.now.get(instance) is not None)
        self.now[instance] = rates[instance] if is_there else None

    def counted(self, service: str, instance: str) -> Counted:
        """Returns what is known of a service and one of its copies."""
        return self._rate[service], self._count[service], self.now.get(instance)

    def restore(self, service: str, instance: str, counted: Counted) -> None:
        """Sets it back to what was known before."""
        self._rate[service], self._count[service], self.now[instance] = counted

    def carried(self, service: str) -> float | None:
        """Returns the rate that the copies of a service carry; None if it is not counted here."""
        return self._rate.get(service)

    def serves(self, service: str) -> bool:
        """Returns whether any copy of the service serves."""
        return self._count[service] > 0

    def wants(self, service: str) -> bool:
        """Returns whether the plan has copies of the service."""
        return self._need[service] > 0 or self._least[service] > 0

    def share(self, service: str, without: float = 0.0) -> float:
        """Returns the share of the planned rate that is carried, or would be without so much; 1 if all of it is."""
        need, rate = self._need[service], self._rate[service] - without
        return 1.0 if rate >= need * (1 - TINY) - TINY else rate / need

    def spell(self, service: str) -> str:
        """Describes the capacity that the service lacks."""
        return f"its copies carry {self._rate[service]:g} of {self._need[service]:g} requests/s, and none can be spared"

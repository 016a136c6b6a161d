"""Limits what an instance carries beside its neighbours, at each pressure that the model knows.

What a shape carries falls with its neighbours' pressure and with the SMs that nothing uses. The model knows it at some
pressures; between two of them it takes that of the lower one, which is never too little.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil

from solvers.crosscheck.shapes import CheckedShape, most_carried, rate_when_a_node_is_lost
from solvers.crosscheck.variables import PARTS, WHOLE_RATE, Slot, Variables, need
from solvers.planning.problem import Policy, Service

LEVELS = 8  # of pressure that it knows of from the beginning

Surroundings = tuple[int, int]  # pressure of neighbours in parts, and SM% that nothing uses
Kind = tuple[str, str]  # a service on a GPU type


@dataclass
class Carrying:
    """The surroundings that the model knows of, by service and GPU type."""

    variables: Variables
    known: dict[Kind, set[Surroundings]] = field(default_factory=dict)
    _values: dict[tuple[str, str, Surroundings], tuple[list[int], list[int]]] = field(default_factory=dict)

    def begin(self) -> None:
        """Limits every instance to what it carries alone, and at some levels of pressure."""
        for slot in self.variables.slots:
            self._limit(slot, (0, 0))
            self.known.setdefault(kind_of(slot), {(0, 0)})
        for kind in sorted(self.known):
            most = max(self._most_beside(slot) for slot in self.variables.slots if kind_of(slot) == kind)
            for level in range(1, LEVELS):
                self.learn(kind, (most * level // LEVELS, 0))

    def learn(self, kind: Kind, around: Surroundings) -> bool:
        """Limits the instances of this kind by what they carry in these surroundings; False if they were known."""
        if around in self.known[kind]:
            return False
        self.known[kind].add(around)
        for slot in self.variables.slots:
            if kind_of(slot) == kind:
                self._limit(slot, around)
        return True

    def _limit(self, slot: Slot, around: Surroundings) -> None:
        model, (beside, unused) = self.variables.model, around
        carried, surviving = self._read_served(slot, around)
        beyond = []
        for least, value, most in (
            (beside, self._name_neighbours(slot), self._most_beside(slot)),
            (unused, 100 - sum(other.sm_percent() for other in self.variables.on(slot.place)), 100),
        ):
            if least > 0:  # so much or more of it: the limit holds
                is_reached = model.new_bool_var("")
                model.add(value <= least - 1 + (most + 1) * is_reached)
                beyond.append(WHOLE_RATE * is_reached.negated())
        model.add(slot.rate <= slot.total(carried) + sum(beyond))
        if slot.service.availability.survive_nodes:
            model.add(slot.surviving <= slot.total(surviving) + sum(beyond))

    def _name_neighbours(self, slot: Slot) -> object:
        return sum(other.pressure() for other in self.variables.on(slot.place) if other is not slot)

    def _most_beside(self, slot: Slot) -> int:
        others = [other for other in self.variables.on(slot.place) if other is not slot]
        return sum(max(need(shape.pressure) for shape in other.shapes) for other in others)

    def _read_served(self, slot: Slot, around: Surroundings) -> tuple[list[int], list[int]]:
        key = (slot.service.name, slot.node.name, around)
        if key not in self._values:
            policy, service = self.variables.problem.policy, slot.service
            beside, idle = around[0] / PARTS, idle_pressure(policy, around[1])
            self._values[key] = (
                round_to_parts(slot, lambda shape: most_carried(policy, service, shape, beside, idle)),
                round_to_parts(slot, lambda shape: rate_when_a_node_is_lost(shape, beside, idle)),
            )
        return self._values[key]


def kind_of(slot: Slot) -> Kind:
    return slot.service.name, slot.node.gpu_type


def idle_pressure(policy: Policy, unused_sm_percent: int) -> float:
    """Returns the pressure of what others may do on the SMs that nothing uses; 0 where whole GPUs are paid."""
    return policy.share_pressure * unused_sm_percent / 100 if policy.pricing == "share" else 0.0


def round_to_parts(slot: Slot, rate_of: Callable[[CheckedShape], float]) -> list[int]:
    """Returns a rate of each shape in parts of the service's, rounded up; at most the whole rate."""
    return [parts_of(slot.service, rate_of(shape)) for shape in slot.shapes]


def parts_of(service: Service, rate: float) -> int:
    """Returns a rate in parts of the service's, rounded up; at most the whole rate."""
    return min(WHOLE_RATE, ceil(WHOLE_RATE * min(rate / service.rate_per_second, 1.0)))

"""The variables of the model: slots on GPUs, each with a shape or none, and a rate.

Everything is a whole number: rates in ten-millionths of their service's, money in billionths, memory, pressure and
watts in millionths. Needs are rounded down and room is rounded up, so that no plan is lost.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from math import ceil, floor
from types import ModuleType
from typing import TYPE_CHECKING, Any

from solvers.crosscheck.scope import refuse_choices
from solvers.crosscheck.shapes import CheckedShape, shapes_on
from solvers.planning.problem import Node, Place, Problem, Service

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel

CP_MODEL = "ortools.sat.python.cp_model"
WHOLE_RATE = 10_000_000  # parts of a service's rate
PARTS = 1_000_000  # of a GiB, a watt, a core, a unit of pressure
MONEY = 1_000_000_000
UNCOUNTED = 100  # parts of a rate that need not be counted as unserved: 1e-5 of it


def need(value: float) -> int:
    """Returns a need in whole parts, rounded down."""
    return floor(value * PARTS)


def room(value: float) -> int:
    """Returns room in whole parts, rounded up."""
    return ceil(value * PARTS)


@dataclass(slots=True, eq=False)
class Slot:
    """A place for one instance of a service on a GPU."""

    service: Service
    node: Node
    place: Place
    shapes: list[CheckedShape]
    is_chosen: list[Any]  # by shape
    runs: Any
    rate: Any  # in parts of the service's
    surviving: Any  # what it can carry when a node is lost, in the same parts

    def total(self, of: list[int]) -> Any:
        """Returns the chosen shape's value, of one for each shape; 0 where none is chosen."""
        return load_cp_model().LinearExpr.weighted_sum(self.is_chosen, of)

    def pressure(self) -> Any:
        return self.total([need(shape.pressure) for shape in self.shapes])

    def sm_percent(self) -> Any:
        return self.total([shape.sm_percent for shape in self.shapes])


@cache
def load_cp_model() -> Any:
    """Returns CP-SAT's module. It imports pandas for functions on series, which nothing here calls.

    The planner's image is without pandas, so that a stand-in has to do there while the module is imported.
    """
    try:
        return import_module(CP_MODEL)
    except ModuleNotFoundError as missing:
        if missing.name != "pandas":
            raise
    stand_in = ModuleType("pandas")
    vars(stand_in).update({name: type(name, (), {}) for name in ("Index", "Series")})
    sys.modules["pandas"] = stand_in
    try:
        return import_module(CP_MODEL)
    finally:
        del sys.modules["pandas"]


def _new_model() -> CpModel:
    model: CpModel = load_cp_model().CpModel()
    return model


@dataclass
class Variables:
    """All variables of a problem."""

    problem: Problem
    model: CpModel = field(default_factory=_new_model)
    slots: list[Slot] = field(default_factory=list)
    is_used: dict[Place, Any] = field(default_factory=dict)
    runs_at_all: dict[str, Any] = field(default_factory=dict)  # by service
    unserved: dict[str, Any] = field(default_factory=dict)  # in parts of the rate
    uncounted: dict[str, Any] = field(default_factory=dict)  # in the same parts, where none counts as unserved
    is_short: dict[str, Any] = field(default_factory=dict)  # where any rate counts as unserved

    @classmethod
    def of(cls, problem: Problem) -> Variables:
        found = cls(problem)
        menus = {
            (service.name, node.name): shapes_on(problem, service, node)
            for service in problem.services.values()
            for node in problem.nodes.values()
        }
        alike = min(problem.policy.same_model_per_gpu, problem.policy.clients_per_gpu)
        gpus = {node.name: node.gpu_count for node in problem.nodes.values()}
        refuse_choices(sum(len(shapes) * gpus[node] * alike for (_, node), shapes in menus.items()))
        for node in problem.nodes.values():
            for index in node.gpus:
                found.is_used[node.name, index] = found.model.new_bool_var("")
                for service in problem.services.values():
                    for _ in range(alike if menus[service.name, node.name] else 0):
                        found._add_slot(service, node, (node.name, index), menus[service.name, node.name])
        for name in problem.services:
            found.runs_at_all[name] = found.model.new_bool_var("")
            found.unserved[name] = found.model.new_int_var(0, WHOLE_RATE, "")
            found.is_short[name] = found.model.new_bool_var("")
            found.uncounted[name] = found.model.new_int_var(0, UNCOUNTED, "")
            found.model.add(found.uncounted[name] == 0).only_enforce_if(found.is_short[name])
            found.model.add(found.unserved[name] <= WHOLE_RATE * found.is_short[name])
        return found

    def on(self, place: Place) -> list[Slot]:
        return [slot for slot in self.slots if slot.place == place]

    def on_node(self, node: str) -> list[Slot]:
        return [slot for slot in self.slots if slot.node.name == node]

    def of_service(self, name: str) -> list[Slot]:
        return [slot for slot in self.slots if slot.service.name == name]

    def _add_slot(self, service: Service, node: Node, place: Place, shapes: list[CheckedShape]) -> None:
        model = self.model
        chosen, runs = [model.new_bool_var("") for _ in shapes], model.new_bool_var("")
        rate = model.new_int_var(0, WHOLE_RATE, "")
        surviving = model.new_int_var(0, WHOLE_RATE, "")
        model.add_exactly_one([*chosen, runs.negated()])
        model.add(rate <= WHOLE_RATE * runs)
        model.add(rate >= runs)
        self.slots.append(Slot(service, node, place, shapes, chosen, runs, rate, surviving))

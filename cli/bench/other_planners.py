"""Asks other planners about a fleet that the joint planner has planned, and compares their costs with its own."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from cli.planner_argument import any_planner

if TYPE_CHECKING:
    from solvers.planning.problem import Problem


def planners(text: str) -> tuple[str, ...]:
    """Reads names of planners, separated by commas; refuses joint, which plans in any case."""
    names = tuple(dict.fromkeys(any_planner(name) for name in text.split(",")))
    if "joint" in names:
        raise argparse.ArgumentTypeError("joint plans in any case; name the planners to compare it with")
    return names


def compare(problem: Problem, names: tuple[str, ...], joint_cost: float) -> dict[str, dict[str, Any]]:
    """Returns for each planner its cost, what of it is the price of unserved rates, and its ratio to the joint cost.

    A plan that breaks a hard rule has no cost; the rules that it breaks are named instead.
    """
    from solvers.planners.ask import PlanRefused, find_plan
    from solvers.planning.solve import SolveBudget

    found: dict[str, dict[str, Any]] = {}
    for name in names:
        try:
            plan = find_plan(problem, name, SolveBudget(seconds=None, work=None), bounds=False).plan
        except PlanRefused as refused:
            found[name] = {"refused": str(refused)}
            continue
        assert plan.certificate
        cost = plan.certificate.cost
        ratio = cost.total / joint_cost if joint_cost > 0 else None
        found[name] = {
            "cost": cost.total,
            "unserved_cost": cost.unserved,
            "unserved": len(plan.unserved),
            "ratio": ratio,
        }
    return found


def spell(name: str, figures: dict[str, Any]) -> str:
    """Spells a planner's figures for a person."""
    if "refused" in figures:
        return f"  {figures['refused']}"
    ratio = "" if figures["ratio"] is None else f", {figures['ratio']:.3f} times the joint planner's"
    return f"  {name}: cost {figures['cost']:,.2f}{ratio}; {figures['unserved']} unserved"

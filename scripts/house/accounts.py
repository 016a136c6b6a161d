"""One account: what is free of GPUs stands in the rooms of the fleet, and what a shape carries in its offers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from scripts.house.tree import Fault, Source, Tree

PLANNERS = (
    "app/control/", "solvers/planning/", "solvers/baselines/", "solvers/crosscheck/", "solvers/hetsev/",
    "solvers/inss/", "solvers/morak/", "solvers/mudi/", "solvers/oltunes/",
)  # fmt: skip
# Rooms with an account of their own, each with the reason.
APART: Mapping[str, str] = {
    "solvers/planning/fleet/": "the account itself",
    "solvers/planning/judge/": "the judge trusts no planner's account",
    "solvers/crosscheck/": "a second account is for trust",
    "solvers/planning/search/": "compiled loops over the patterns of a GPU",
    "solvers/planning/replan/": "compiled loops over what runs",
    "solvers/planning/jobs/": "compiled loops over the places of jobs",
    "solvers/inss/batching/": "the problem of one GPU, as the paper states it",
    "solvers/inss/throughput/": "the problem of GPUs of a few kinds, as the paper states it",
    "solvers/mudi/sharing/": "the problem of one GPU, as the paper states it",
    "app/control/decide/": "compares two plans before they are judged",
    "app/control/fast/": "changes a few GPUs of a judged plan",
}
FREE = re.compile(r"_?(?:free|spare|unused)_(?:sm|sms|gib|memory|(?:sm_|memory_)?(?:percents?|gib))")
HELD = {"sm_percent", "memory_gib"}
SUMS = {"sum", "fsum", "int", "float", "min", "max"}  # whose result is of what they are given

# Rooms that read the table of accepted loads, beside the offers.
READERS: Mapping[str, str] = {
    "solvers/latency/": "the table itself",
    "solvers/planning/fleet/": "the offers",
    "solvers/crosscheck/": "a second account is for trust",
    "benchmarks/": "draws services before there is a problem",
    "lab/": "a second account is for trust",
    "solvers/planning/search/": "compiled loops; their tables are read once for a problem",
    "solvers/planning/replan/": "compiled loops, over the tables of the search",
    "solvers/planning/exact/": "compiled loops, over the tables of the search",
    "solvers/planning/bound/": "compiled loops, over the tables of the search",
    "solvers/planning/jobs/": "compiled loops over the services beside jobs",
    "solvers/planning/explain/thin.py": "looks at the tables of the search",
    "solvers/planning/explain/applied.py": "looks at one instance at the time that it has",
}
LOADS = {
    "solvers.latency": {"limits", "max_rate", "limit_loads"},
    "solvers.latency.kernels": {"accepted_load", "needed_ratio"},
    "solvers.latency.limits": {"limits", "limit_loads"},
    "solvers.latency.rates": {"max_rate"},
    "solvers.planning.fleet.grids": {"accepted_loads", "read_loads"},
}


def free_room_is_counted_by_the_fleets_rooms_alone(tree: Tree) -> Iterator[Fault]:
    for source in tree.product:
        if source.name.startswith(PLANNERS) and not source.name.startswith(tuple(APART)):
            for line, what in find_accounts(source):
                yield source.fault(line, f"{what}: free SM% and memory are fields of FleetRooms alone")


def find_accounts(source: Source) -> Iterator[tuple[int, str]]:
    """Yields what counts SM% or memory: sums that grow or shrink, what a GPU has left, and fields of that name."""
    for node in source.nodes:
        match node:
            case ast.AugAssign(target=target, op=ast.Add() | ast.Sub(), value=value):
                if _holds(target) or _holds(value):
                    yield node.lineno, ast.unparse(node)
            case ast.BinOp(left=ast.Constant(value=100), op=ast.Sub(), right=right) if _holds(right):
                yield node.lineno, ast.unparse(node)
            case ast.BinOp(left=ast.Attribute(attr="memory_gib"), op=ast.Sub(), right=right):
                if not isinstance(right, ast.Attribute):  # a line's memory less another's
                    yield node.lineno, ast.unparse(node)
            case ast.FunctionDef(name=name) | ast.Attribute(attr=name, ctx=ast.Store()) if FREE.fullmatch(name):
                yield node.lineno, name
            case ast.ClassDef(body=body):
                for line in body:
                    if isinstance(line, ast.AnnAssign) and FREE.fullmatch(name := ast.unparse(line.target)):
                        yield line.lineno, name


def _holds(node: ast.AST) -> bool:
    """Returns whether a number is made of SM% or memory, not only looked up by them."""
    match node:
        case ast.Attribute(attr=name):
            return name in HELD
        case ast.Call(func=func) if ast.unparse(func) not in SUMS:
            return False
        case ast.Subscript(value=value):
            return _holds(value)
        case ast.JoinedStr():
            return False
    return any(_holds(child) for child in ast.iter_child_nodes(node))


def accepted_loads_are_read_from_offers(tree: Tree) -> Iterator[Fault]:
    """What a shape may carry is found once for a problem: a planner that reads the table itself finds it again."""
    for source in tree.product:
        if not source.name.startswith(tuple(READERS)) and ("latency" in source.text or "grids" in source.text):
            for line, name in find_readings(source):
                yield source.fault(line, f"{name}: accepted loads are read from Offers alone")


def find_readings(source: Source) -> Iterator[tuple[int, str]]:
    """Yields what reads the table of accepted loads."""
    for node in source.nodes:
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                for alias in names:
                    if alias.name in LOADS.get(module, ()):
                        yield node.lineno, alias.name
            case ast.Attribute(value=ast.Name(id="latency" | "kernels"), attr=name):
                if any(name in loads for loads in LOADS.values()):
                    yield node.lineno, ast.unparse(node)


RULES = (free_room_is_counted_by_the_fleets_rooms_alone, accepted_loads_are_read_from_offers)

"""Finds the nodes whose GPUs can be divided into MIG devices, and into which.

A Node has GPUs of one type. So all GPUs of a node are divided alike, into as many devices of one size as a GPU holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agents.contract.gpus import MigProfile, read_sheets
from app.control.domain.snapshot import DeclaredObject
from app.control.domain.specs import Spec, gpu_count, memory_gib
from solvers.planning.problem import Node, Problem

MEMORY_TOLERANCE_SHARE = 1 / 15  # drivers report up to so much less than a sheet says


@dataclass(frozen=True, slots=True)
class MigLayout:
    """One way to divide every GPU of a node."""

    whole_type: str
    profile: MigProfile
    sm_share: float  # of the whole GPU, that a device has
    memory_share: float  # likewise of its memory's slices, which have the bandwidth

    @property
    def gpu_type(self) -> str:
        """Returns the name of the GpuType of its devices."""
        return f"{self.whole_type}-{self.profile.name.replace('.', '-')}"

    @property
    def speed_share(self) -> float:
        """Returns the part of the whole GPU's SMs that is taken to be as fast as a device, at most."""
        return min(self.sm_share, self.memory_share)


@dataclass(frozen=True, slots=True)
class DivisibleNodes:
    """Nodes that differ in their names alone, those with the fewest copies first, and how they could be divided."""

    nodes: tuple[str, ...]
    layouts: tuple[MigLayout, ...]


@dataclass(frozen=True, slots=True)
class DivisibleFleet:
    """The nodes that could be divided, and why others could not, by node."""

    groups: tuple[DivisibleNodes, ...]
    left_out: Mapping[str, str]


def find_divisible(
    problem: Problem, declared: Sequence[DeclaredObject], pinned: frozenset[str] = frozenset()
) -> DivisibleFleet:
    """Returns the nodes of the problem that could be divided; `pinned` has nodes with copies that cannot leave."""
    types = {line.name: line.spec for line in declared if line.kind == "GpuType"}
    whole = {line.name: gpu_count(line.spec) for line in declared if line.kind == "Node"}
    layouts = {name: tuple(list_layouts(name, spec)) for name, spec in types.items()}
    with_jobs = {job.node for job in problem.state.jobs} if problem.state else set()
    copies = _count_copies(problem)
    left_out: dict[str, str] = {}
    alike: dict[tuple[object, ...], list[str]] = {}
    for name, node in problem.nodes.items():
        why = "" if layouts.get(node.gpu_type) else f"a {node.gpu_type} is no GPU that can be divided"
        why = why or ("its GPUs have capW, and MIG devices share their GPU's watts" if node.caps_w else "")
        why = why or ("a job runs there" if name in with_jobs else "")
        is_open = node.gpu_count == whole.get(name, -1) and name not in pinned and node.pricing != "paid"
        why = why or ("" if is_open else "not all of its GPUs can be emptied now")
        if why:
            left_out[name] = why
        else:
            alike.setdefault(_describe(node), []).append(name)
    groups = tuple(
        DivisibleNodes(tuple(sorted(names, key=lambda name: (copies.get(name, 0), name))), layouts[str(kind[0])])
        for kind, names in alike.items()
    )
    return DivisibleFleet(groups, left_out)


def list_layouts(name: str, gpu_type: Spec) -> Iterator[MigLayout]:
    """Yields the ways to divide a GPU of this type; its SMs and memory tell which GPU of the catalogue it is."""
    alike = [
        sheet for sheet in read_sheets().values()
        if sheet.sm_count == gpu_type["smCount"]
        and abs(memory_gib(gpu_type) / sheet.memory_gib - 1) <= MEMORY_TOLERANCE_SHARE
    ]  # fmt: skip
    named = [sheet for sheet in alike if sheet.name == name] or alike
    divisible = [sheet for sheet in named if sheet.mig_profiles]
    if not divisible or len(divisible) < len({sheet.mig_profiles for sheet in named}):
        return
    sheet = divisible[0]
    for profile in sheet.mig_profiles:
        yield MigLayout(
            name, profile, profile.sm_count / sheet.sm_count, profile.memory_slices / sheet.mig_memory_slices
        )


def _count_copies(problem: Problem) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in problem.state.running if problem.state else ():
        found[line.node] = found.get(line.node, 0) + 1
    return found


def _describe(node: Node) -> tuple[object, ...]:
    return (
        node.gpu_type, node.gpu_count, node.price_per_hour, node.purchase, node.region, node.cpu_cores,
        node.host_memory_gib, node.templates, node.pricing,
    )  # fmt: skip

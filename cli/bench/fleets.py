"""The fleets that a benchmark plans: those of a family by seed, or those of files, as declared or at moved rates."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cli import declared
from cli.bench.plan_arguments import FAMILY, GPUS, SEEDS, SERVICES, families
from cli.exits import Failed

if TYPE_CHECKING:
    from solvers.planning.problem import Problem

OF_A_FAMILY = ("gpus", "services", "family", "seeds")
FILES = "files"  # the group of all files at their own rates


@dataclass(frozen=True, slots=True)
class BenchFleet:
    """A problem to plan, the group that its figures are counted in, and what a row says of it."""

    problem: Problem
    group: str
    family: str | None
    file: str | None
    seed: int

    @property
    def name(self) -> str:
        return f"{self.file or f'family {self.family}'}, seed {self.seed}"

    @property
    def columns(self) -> dict[str, Any]:
        gpus = sum(node.gpu_count for node in self.problem.nodes.values())
        size = {"gpus": gpus, "services": len(self.problem.services)}
        return size | {"family": self.family, "file": self.file, "seed": self.seed}


def refuse_mixed(args: argparse.Namespace) -> None:
    """Refuses flags of families beside files, and moved rates without files."""
    given = [f"--{name}" for name in OF_A_FAMILY if getattr(args, name) is not None]
    if args.files and given:
        raise Failed(f"{', '.join(given)} draws a family and -f reads files; give one of the two")
    if args.moved and not args.files:
        raise Failed("--moved moves the rates of files: name them with -f")


def fleets(args: argparse.Namespace) -> Iterator[BenchFleet]:
    """Yields the fleets, each made when its turn comes; files are all read before the first."""
    if args.files:
        yield from _read_fleets(args.files, args.moved)
        return
    from benchmarks.families import family

    gpus, services = args.gpus or GPUS, args.services or SERVICES
    for name in families(args.family or FAMILY):
        for seed in range(args.seeds or SEEDS):
            yield BenchFleet(family(name, gpus, services, seed), name, name, None, seed)


def _read_fleets(files: list[str], moved: int | None) -> Iterator[BenchFleet]:
    from benchmarks.altered import move_rates

    for file, problem in [(file, declared.fleet_to_plan(file)) for file in files]:
        if moved is None:
            yield BenchFleet(problem, FILES, None, file, 0)
            continue
        for seed in range(moved):
            yield BenchFleet(move_rates(problem, seed), file, None, file, seed)

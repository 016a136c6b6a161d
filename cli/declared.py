"""Files named with -f as the problem they declare, read here and without a server; every fault of all of them named."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from cli import sources
from cli.exits import Failed

if TYPE_CHECKING:
    from app.manifests.faults import ManifestsRefused
    from app.manifests.offline import DeclaredFiles, Input
    from solvers.planning.problem import Problem

Built = TypeVar("Built")


class DeclaredProblem(NamedTuple):
    """The problem that files declare, and the currency of its money; empty where they name none."""

    problem: Problem
    currency: str


def problem(args: argparse.Namespace) -> DeclaredProblem:
    """Returns the problem that the files of -f declare; Failed with every fault where they declare none."""
    from app.control.formulate.problem import build_problem

    return _read(args, lambda found: DeclaredProblem(build_problem(found), found.currency))


def fleet_to_plan(file: str) -> Problem:
    """Returns the problem of a single file or folder, as `problem_to_plan` does."""
    return problem_to_plan(argparse.Namespace(files=[file], recursive=False)).problem


def problem_to_plan(args: argparse.Namespace) -> DeclaredProblem:
    """Returns what `problem` does; Failed, too, where no planner could keep tenants apart as the policy demands."""
    from app.control.formulate.problem import build_problem
    from app.manifests.apart import find_unseparated, keeps_apart
    from app.manifests.faults import ManifestsRefused
    from app.manifests.model import Kind

    def checked(found: DeclaredFiles) -> DeclaredProblem:
        if any(keeps_apart(policy.spec) for policy in found.of(Kind.POLICY)):
            models = {model.name: model.spec for model in found.of(Kind.MODEL)}
            if faults := list(find_unseparated(found.manifests.values(), models)):
                raise ManifestsRefused(faults)
        return DeclaredProblem(build_problem(found), found.currency)

    return _read(args, checked)


def world(args: argparse.Namespace) -> DeclaredFiles:
    """Returns what the files of -f declare; Failed with every fault."""

    def checked(found: DeclaredFiles) -> DeclaredFiles:
        from app.control.formulate.problem import build_problem

        build_problem(found)
        return found

    return _read(args, checked)


def _read(args: argparse.Namespace, build: Callable[[DeclaredFiles], Built]) -> Built:
    from app.manifests.faults import ManifestsRefused
    from app.manifests.offline import load

    inputs = [entry for word in args.files for entry in _inputs(word, recursive=args.recursive)]
    if sum(isinstance(entry, Path) for entry in inputs) < len(inputs) - 1:
        raise Failed("stdin (-) can be given only once")
    gc.disable()  # nothing that is read is garbage, and looking for it takes a third of the time
    try:
        return build(load(inputs))
    except ManifestsRefused as refused:
        raise refusal(refused, str(args.files[0]) if len(inputs) == 1 else f"{len(inputs)} files") from None
    finally:
        gc.enable()


def refusal(refused: ManifestsRefused, source: str) -> Failed:
    """Returns all that is wrong with an input, a line each."""
    count = len(refused.faults)
    return Failed(f"{'1 fault' if count == 1 else f'{count} faults'} in {source}", particulars=map(str, refused.faults))


def _inputs(word: str, *, recursive: bool) -> list[Path | Input]:
    from app.manifests.offline import Input

    return [
        Input(name, sys.stdin.buffer.read(sources.LIMIT_BYTES + 1)) if path is None else path
        for name, path in sources.paths(word, recursive=recursive)
    ]

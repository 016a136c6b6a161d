"""Writes the placements of a plan as lines that a person compares."""

from __future__ import annotations

from collections.abc import Mapping

from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from solvers.planning.wire import to_json


def list_placements(plan: Plan, problem: Problem) -> tuple[str, ...]:
    """Returns a line for each instance, placed job and remainder, in an order that does not depend on ids."""
    found = to_json(plan, problem)
    instances = [
        f"{line['service']} on {_place(line)}: {line['variant']}, batch {line['batch']:g}, {line['smPercent']:g} %, "
        f"{line['memoryGib']:.6g} GiB, {line['clockMhz']:g} MHz, {line['ratePerSecond']:.6g}/s"
        for line in found["instances"]
    ]
    jobs = [f"{job['job']} on {_place(job)}: {job['smPercent']:g} %" for job in found["jobs"]]
    unserved = [f"{entry['service']}: {entry['ratePerSecond']:.6g}/s unserved" for entry in found["unserved"]]
    unplaced = [f"{entry['job']}: unplaced" for entry in found["unplaced"]]
    return tuple(sorted([*instances, *jobs, *unserved, *unplaced]))


def _place(line: Mapping[str, object]) -> str:
    gpus = line.get("gpus") or [line["gpu"]]
    assert isinstance(gpus, list)
    return f"{line['node']}/{'+'.join(f'{gpu:g}' for gpu in gpus)}"

"""Adopts copies that run here but are in no journal, by the environment that they were started with."""

from __future__ import annotations

from pathlib import Path

import msgspec

from agents.contract.assignments import AssignedInstance, Assignment
from agents.devices.simulated.limits import memory_limit_gib
from agents.keeper.copies import NodeCopy, Stage, largest_batch
from agents.keeper.starting import METRICS_PORT, PORT
from agents.runtime import Running
from agents.seams.mps_variables import MEMORY_LIMIT_VARIABLE, SM_PERCENT_VARIABLE, VISIBLE_DEVICES_VARIABLE

TOLERANCE_GIB = 0.01  # limits are set in whole MiB


def instance_of(copy: str) -> str:
    """Returns the instance that a copy's name contains."""
    return copy.rsplit(".", 2)[0]


def adopt_copy(running: Running, assignment: Assignment | None, now: float) -> NodeCopy | str:
    """Returns the unknown process as a copy to be verified, or why it cannot be adopted.

    Its limits are read from its environment, never assumed; without readable limits it is not adopted.
    """
    name = instance_of(running.copy)
    wanted = next((instance for instance in assignment.instances if instance.id == name), None) if assignment else None
    if wanted is None:
        return f"{running.copy}: no instance {name} is assigned to this node"
    try:
        environment = _environment(running.pid)
        share = float(environment[SM_PERCENT_VARIABLE])
        if not 0 < share <= 100:  # false for NaN, too, which no journal can hold
            raise ValueError(f"the share {share:g} % is outside 0..100")
        memory_gib = memory_limit_gib(environment[MEMORY_LIMIT_VARIABLE])
        held = wanted.memory_gib if abs(memory_gib - wanted.memory_gib) < TOLERANCE_GIB else memory_gib
        return NodeCopy(
            id=running.copy,
            wanted=msgspec.structs.replace(wanted, sm_percent=share, memory_gib=held),
            gpu=environment[VISIBLE_DEVICES_VARIABLE].partition(",")[0],
            stage=Stage.VERIFYING,
            port=int(environment[PORT]),
            metrics_port=int(environment.get(METRICS_PORT, "0")),
            largest_batch=largest_batch(wanted),
            running=running,
            born=now,
            since=now,
        )
    except (KeyError, ValueError, OSError) as error:
        return f"{running.copy}: its limits cannot be read ({type(error).__name__}: {error})"


def end_stranger(running: Running, now: float) -> NodeCopy:
    """Returns the unknown process as a copy that is to be ended."""
    environment = _environment(running.pid)
    unassigned = AssignedInstance(instance_of(running.copy), 0, job="stranger")
    return NodeCopy(
        running.copy,
        unassigned,
        environment.get(VISIBLE_DEVICES_VARIABLE, ""),
        Stage.ENDING,
        running=running,
        born=now,
        since=now,
    )


def _environment(pid: int) -> dict[str, str]:
    text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)

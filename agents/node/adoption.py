"""Copies that run here and that no journal knows: what they are, read from what they were started with."""

from __future__ import annotations

from pathlib import Path

import msgspec

from agents.contract import AssignedInstance, Assignment
from agents.devices.simulated.limits import memory_limit_gib
from agents.keeper.copies import NodeCopy, Stage, largest_batch
from agents.keeper.starting import METRICS_PORT, PORT
from agents.runtime import Running

SHARE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MEMORY = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
TINY_GIB = 0.01  # limits are told in whole MiB
DEVICE = "CUDA_VISIBLE_DEVICES"


def instance_of(copy: str) -> str:
    """The instance that a copy's name says it is of."""
    return copy.rsplit(".", 2)[0]


def adopt_copy(running: Running, assignment: Assignment | None, now: float) -> NodeCopy | str:
    """The stranger as a copy to be verified, or why it cannot be one.

    What it was given is read from its environment, never assumed: a limit that cannot be told is none.
    """
    name = instance_of(running.copy)
    wanted = next((one for one in assignment.instances if one.id == name), None) if assignment else None
    if wanted is None:
        return f"{running.copy}: no instance {name} is assigned to this node"
    try:
        environment = _environment(running.pid)
        share = float(environment[SHARE])
        if not 0 < share <= 100:  # false for NaN, too, which no journal can hold
            raise ValueError(f"a share of {share:g} % is none")
        memory_gib = memory_limit_gib(environment[MEMORY])
        held = wanted.memory_gib if abs(memory_gib - wanted.memory_gib) < TINY_GIB else memory_gib
        return NodeCopy(
            id=running.copy,
            wanted=msgspec.structs.replace(wanted, sm_percent=share, memory_gib=held),
            gpu=environment[DEVICE],
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
    """The stranger as a copy that is to go."""
    environment = _environment(running.pid)
    nobody = AssignedInstance(instance_of(running.copy), 0, job="stranger")
    return NodeCopy(
        running.copy, nobody, environment.get(DEVICE, ""), Stage.ENDING, running=running, born=now, since=now
    )


def _environment(pid: int) -> dict[str, str]:
    text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)

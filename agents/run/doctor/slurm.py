"""Checks what Slurm knows of this machine, where copies are its jobs."""

from __future__ import annotations

from collections.abc import Iterator

from agents.run.doctor.findings import DoctorFinding, fail, ok, warn
from agents.run.opening import AgentOptions, name_slurm_nodes
from agents.runtime import LaunchError
from agents.runtime.slurm_commands import SlurmCommands

_STARTS = ("IDLE", "MIXED", "ALLOCATED", "COMPLETING")


def check_slurm(options: AgentOptions, gpus: int) -> Iterator[DoctorFinding]:
    """Checks that Slurm answers, that each GPU here can be asked for by its share, and that jobs start."""
    nodes = name_slurm_nodes(options)
    try:
        slurm = SlurmCommands(options.slurm_options)
        known = slurm.read_gpus_here(nodes, gpus)
        states = {node: slurm.read_state(node) for node in nodes}
    except LaunchError as error:
        advice = "Install slurm-client, start slurmctld and slurmd, or name Slurm's nodes here with --slurm-nodes."
        yield fail("slurm", str(error), advice)
        return
    except ValueError as error:
        yield fail("slurm", str(error), "docs/runtimes.md#slurm says which GresTypes and gres.conf it takes.")
        return
    yield ok("slurm", f"{', '.join(f'{gpu.node} gives {gpu.gres}:{gpu.type or gpu.count}' for gpu in known)}")
    for node, state in states.items():
        if not set(state) <= set(_STARTS):
            advice = "See `scontrol show node`; `scontrol update nodename=... state=resume` undoes a drain."
            yield warn("slurm", f"{node} is {'+'.join(state)}: Slurm starts nothing there", advice)

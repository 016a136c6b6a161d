"""What a node's copies are to their neighbours."""

from __future__ import annotations

from agents.keeper.copies import NodeCopy
from simulation.fleet.node import LightNode
from simulation.fleet_truth import SimulatedResident
from simulation.serving.copies import largest_batch
from solvers.planning.problem import Demand


def resident_of(node: LightNode, copy: NodeCopy) -> SimulatedResident:
    """Returns how much a copy of the node slows others down and draws."""
    problem, wanted, busy = node.truth.problem, copy.wanted, node.work[copy.id].busy_share
    if copy.served:
        found = problem.profiles.get(key := node.key(copy))
        return SimulatedResident(found.demand if found else Demand(), wanted.sm_percent, key, largest_batch(copy), busy)
    job = problem.jobs.get(wanted.owner)
    demand = job.profiles[node.gpu_type].demand if job and node.gpu_type in job.profiles else Demand()
    return SimulatedResident(demand, wanted.sm_percent, ("job", wanted.owner, node.gpu_type), 1, busy)

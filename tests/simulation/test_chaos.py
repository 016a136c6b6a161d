"""Random faults on a fleet in virtual time: invariants hold, and after the last fault the fleet recovers."""

from __future__ import annotations

import pytest

from agents.keeper.copies import Stage
from app.manifests.offline import DeclaredFiles
from simulation.run import open_simulation
from simulation.world import read_documents
from tests.simulation.chaos import Chaos
from tests.simulation.worlds import CALM_TICK_SECONDS, gpu_type, model, node, policy, profile, service
from tests.support.soak import scaled

FAULTS = 10  # in a sequence
CYCLES = 5  # after the last fault
SEEDS = range(scaled(100, 1))


def world() -> DeclaredFiles:
    names = ("a", "b", "c", "d")
    return read_documents(
        [
            gpu_type(),
            policy(mode="auto"),
            *(node(f"node-{number}") for number in range(5)),
            *(document for name in names for document in (model(name), profile(name))),
            *(service(name, rate) for name, rate in zip(names, (260.0, 180.0, 120.0, 60.0), strict=True)),
        ]
    )


def settled(chaos: Chaos) -> list[str]:
    """Returns everything that is not yet as it should be."""
    simulation = chaos.simulation
    view = simulation.planner.store.view()
    found = []
    if view.plan is None or view.plan.state != "done":
        found.append(f"the plan in force is {view.plan.state if view.plan else 'none'}")
    assigned = {instance.id for wanted in view.assigned.values() for instance in wanted.instances}
    for name, at in simulation.fleet.nodes.items():
        found += [f"{copy.id} on {name} is {copy.stage}" for copy in at.alive() if copy.stage is not Stage.READY]
        found += [f"{copy.id} on {name} is not assigned" for copy in at.alive() if copy.instance not in assigned]
    found += [f"{name} is not served" for name in simulation.fleet.declared if not simulation.fleet.ready(name)]
    return found


def converged(chaos: Chaos) -> list[str]:
    """The expectations that were not met within so many cycles after the last fault."""
    ends = chaos.simulation.clock.seconds + CYCLES * chaos.simulation.planner.cycle_seconds
    while chaos.simulation.clock.seconds < ends:
        chaos.advance(5)
        if not settled(chaos):
            return []
    return settled(chaos)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_random_faults_break_nothing_that_must_hold_and_leave_nothing_behind(database_url: str, seed: int) -> None:
    with open_simulation(database_url, world()) as simulation:
        chaos = Chaos(simulation, seed)
        chaos.advance(90, CALM_TICK_SECONDS)
        assert settled(chaos) == []
        for _ in range(FAULTS):
            chaos.strike()
            chaos.advance(chaos.rng.uniform(5, 60))
        chaos.mend()
        unsettled = converged(chaos)
        chaos.at_the_end()
        assert chaos.violations == [], chaos.struck
        assert unsettled == [], chaos.struck

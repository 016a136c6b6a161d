"""A fleet on a physics of its own: the planner knows profiles, and sees the rest in telemetry."""

from __future__ import annotations

import pytest

from simulation.profiling import SIXTEEN, profile_world
from simulation.run import open_simulation
from simulation.truth.physics import Physics
from simulation.world import read_documents, truth_of
from tests.simulation.worlds import document, gpu_type, node, policy, profile, service, small

KEY = ("a", "fp16", "v100-16gb")


def test_profiles_are_what_is_believed_and_the_physics_what_happens() -> None:
    believed, made = truth_of(small()), truth_of(small(), physics=Physics(1))
    assert made.problem == believed.problem
    assert made.exec_ms(KEY, 8, 40, []) != believed.exec_ms(KEY, 8, 40, [])
    assert made.exec_ms(KEY, 8, 40, []) == pytest.approx(believed.exec_ms(KEY, 8, 40, []), rel=0.4)
    assert made.watts("v100-16gb", []) == believed.watts("v100-16gb", [])


def test_the_physics_stays_when_somebody_declares_other_profiles() -> None:
    physics = Physics(1)
    before = truth_of(small(), physics=physics).exec_ms(KEY, 8, 40, [])
    slower = [profile("a", speed=0.5) if one["kind"] == "Profile" else one for one in _one_service()]
    after = truth_of(read_documents(slower), physics=physics)
    assert after.exec_ms(KEY, 8, 40, []) == before
    assert after.problem.profiles[KEY].latency_ms[8][0][1] == pytest.approx(192.0)


@pytest.mark.slow
def test_services_keep_their_slo_on_profiles_that_were_measured(database_url: str) -> None:
    physics = Physics(4)
    world = profile_world(small(gpus=4), physics, SIXTEEN)
    with open_simulation(database_url, world, physics=physics) as simulation:
        simulation.advance(120)
        before = {name: total.copied() for name, total in simulation.fleet.services.items()}
        simulation.advance(180)
        problem = simulation.fleet.truth.problem
        for name, total in simulation.fleet.services.items():
            within, requests = total.within - before[name].within, total.requests - before[name].requests
            assert requests > 0
            assert 100 * within / requests >= problem.services[name].percentile - 0.5


def _one_service() -> list[dict[str, object]]:
    model = document("Model", "a", {"variants": [{"name": "fp16", "accuracy": 0.76}]})
    return [gpu_type(), node("n"), model, profile("a"), service("a", 100.0), policy()]

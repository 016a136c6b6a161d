"""Programs on simulated GPUs that follow a physics: they slow each other as the physics says."""

from __future__ import annotations

import pytest

from agents.devices.simulated.machine import Machine
from agents.devices.simulated.speeds import PlayedLoad
from simulation.truth.fitting import KnownFigures
from simulation.truth.physics import Physics, RunningLoad
from simulation.truth_driver import PhysicalSpeeds

GPU_TYPE = "v100"
KEY, OTHER = ("embed", "fp16", GPU_TYPE), ("rank", "fp16", GPU_TYPE)
WORDS = "1:20=12,100=5;8:20=60,100=20"
POINTS = {1: [(20.0, 12.0), (100.0, 5.0)], 8: [(20.0, 60.0), (100.0, 20.0)]}


def truth() -> tuple[Physics, PhysicalSpeeds]:
    physics = Physics(3)
    physics.add_gpu(GPU_TYPE, 40.0, 300.0, 1530.0)
    for key in (KEY, OTHER):
        physics.add_model(key, KnownFigures(POINTS))
    return physics, PhysicalSpeeds(physics, GPU_TYPE, {"e": KEY[:2], "r": OTHER[:2]})


def machine(speeds: PhysicalSpeeds) -> tuple[Machine, str]:
    made = Machine(["v100-16gb"])
    made.speeds = speeds
    uuid = next(iter(made.slots))
    made.slots[uuid].daemon.start()
    return made, uuid


def test_a_program_alone_has_the_physics_times_at_every_batch() -> None:
    physics, speeds = truth()
    made, uuid = machine(speeds)
    mine = made.attach(uuid, 1, 20.0, None, 1.0)
    assert made.times_ms(uuid, mine) == {}, "it does not say what it plays"
    mine.load = PlayedLoad("e", WORDS, 6)
    times = made.times_ms(uuid, mine)
    assert sorted(times) == [1, 2, 4, 6]
    assert times == {batch: pytest.approx(physics.alone_ms(KEY, batch, 20.0)) for batch in times}


def test_a_busy_neighbour_slows_it_by_the_part_of_the_time_in_which_it_is_busy() -> None:
    physics, speeds = truth()
    made, uuid = machine(speeds)
    mine, other = made.attach(uuid, 1, 60.0, None, 1.0), made.attach(uuid, 2, 40.0, None, 1.0)
    mine.load, other.load = PlayedLoad("e", WORDS, 8), PlayedLoad("r", WORDS, 8, batch=8)
    alone = physics.alone_ms(KEY, 8, 60.0)
    assert made.times_ms(uuid, mine)[8] == pytest.approx(alone), "an idle neighbour slows nothing"
    together = physics.together((RunningLoad(KEY, 8, 60.0), RunningLoad(OTHER, 8, 40.0))).times_ms[0]
    assert together > 1.01 * alone
    for busy in (1.0, 0.25):
        made.busy(uuid, other, busy)
        assert made.times_ms(uuid, mine)[8] == pytest.approx(busy * together + (1 - busy) * alone)


def test_a_program_of_a_model_that_the_physics_has_not_met_gives_it_its_scale() -> None:
    physics, speeds = truth()
    made, uuid = machine(speeds)
    mine = made.attach(uuid, 1, 100.0, None, 1.0)
    mine.load = PlayedLoad("new", "1:100=7", 1)
    assert made.times_ms(uuid, mine)[1] == pytest.approx(physics.alone_ms(("new", "", GPU_TYPE), 1, 100.0))
    assert made.times_ms(uuid, mine)[1] == pytest.approx(7.0, rel=0.3)

"""Trainings beside services: even parts of the spare SMs, and the slope by which Mudi chooses a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solvers.mudi.beside import SharedDevice, SlopedService, parts, profiles, slope
from solvers.planning.problem import Demand, Job, JobProfile

STEEP = SlopedService(20, ((10, 90.0), (30, 30.0), (100, 25.0)), 0.3, 0.5)
GENTLE = replace(STEEP, sm_percent=60)


def job(name: str, gpu_type: str = "t") -> Job:
    profile = JobProfile(((10, 1.0), (40, 2.0), (80, 3.0)), 4.0, Demand(pressure=((1, 0.4),), sensitivity=0.5))
    return Job(name, "lab", "training", 100.0, {gpu_type: profile})


def test_the_slope_is_that_of_the_services_piece_slowed_by_its_neighbours() -> None:
    steep, gentle = SharedDevice((STEEP,), 80), SharedDevice((GENTLE,), 40)
    assert slope(steep, ()) == pytest.approx(60 / 20)
    assert slope(gentle, ()) == pytest.approx(5 / 70)
    assert slope(steep, [job("lab/a").profiles["t"]]) == pytest.approx(3 * (1 + 0.5 * 0.4))
    assert slope(SharedDevice((replace(STEEP, sm_percent=30),), 70), ()) == pytest.approx(3)  # the steeper side
    assert slope(SharedDevice((), 100), ()) == 0


def test_spare_sms_are_split_evenly_up_to_what_was_measured() -> None:
    measured = profiles("t", [job("lab/a"), job("lab/b"), job("lab/c")])
    assert measured
    assert parts(80, measured) == [26, 26, 26]
    assert parts(100, measured[:1]) == [80]


def test_a_training_that_was_never_measured_on_the_type_has_no_profiles() -> None:
    assert profiles("t", [job("lab/a"), job("lab/b", "other")]) is None

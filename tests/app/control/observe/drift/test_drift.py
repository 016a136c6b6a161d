"""Profiles under observation: from nodes' reports to a correction that settles, while plans follow it."""

from __future__ import annotations

import pytest

from app.control.domain.corrected import correct_profile, factor_at
from app.control.observe.drift.drift import Drift
from app.control.observe.drift.predict import predict_running, profile_places
from app.control.observe.drift.rows import read_correction, write_correction
from app.store.database.database import Database
from app.store.plans import corrections
from solvers.planning.problem import (
    Demand,
    GpuType,
    Instance,
    Node,
    Problem,
    Profile,
    RunningState,
    Service,
    Variant,
)
from tests.support.corrections import slower
from tests.support.words import at, readings, received_report, served

V100 = GpuType("v100", 16, 40, 300, (900, 1530))
PROFILE = Profile(
    "resnet", "fp16", "v100", {8: ((10, 96.1), (30, 40.3), (100, 22.7))}, {8: 1.9},
    Demand(pressure=((100, 0.5),), sensitivity=0.3, power_w=((100, 180.0),)),
)  # fmt: skip
KEY = "resnet/fp16/v100"


def instance(name: str, gpu: int, sm_percent: int = 30) -> Instance:
    return Instance(name, "shop/search", "n", gpu, "fp16", 8, 0.0, sm_percent, 1.9, 1530, 60.0)


def question(profile: Profile, *running: Instance) -> Problem:
    """The problem of a fleet with this declared profile."""
    return Problem(
        {"v100": V100}, {"n": Node("n", "v100", (0, 1, 2, 3), 48, 256, 1.2)}, {"resnet": (Variant("fp16", 0.7),)},
        {profile.key: profile}, {"shop/search": Service("shop/search", "shop", "resnet", ("fp16",), 200, 98, 120)},
        state=RunningState(running=running),
    )  # fmt: skip


def test_neighbours_are_part_of_a_prediction() -> None:
    alone = predict_running(question(PROFILE, instance("a", 0), instance("b", 1)))
    assert alone["a"].exec_ms == pytest.approx(40.3)
    assert alone["a"].impacts == ()
    beside = predict_running(question(PROFILE, instance("a", 0), instance("b", 0)))
    assert beside["a"].exec_ms == pytest.approx(40.3 * 1.15)
    assert dict(beside["a"].impacts) == {"resnet/fp16": pytest.approx(0.15)}


def test_another_profile_is_another_mark() -> None:
    before = predict_running(question(PROFILE, instance("a", 0)))
    after = predict_running(question(correct_profile(PROFILE, slower(1.5)), instance("a", 0)))
    assert before["a"].profile != after["a"].profile


def run(drift: Drift, truth: float, minutes: int, start: int = 0) -> list[float]:
    """Runs a fleet at its true speed and a planner that learns; returns the factors it went through."""
    factors = [factor_at(drift.known[KEY].correction, 8, 30) if KEY in drift.known else 1.0]
    for second in range(start * 60 + 5, (start + minutes) * 60, 10):
        running = [instance("a", 0), instance("b", 1)]
        problem = question(PROFILE, *running)
        drift.expects(predict_running(problem), profile_places(problem, problem.profiles))
        batches = 10 * (second % 60)
        copies = [
            {"id": f"c-{instance.id}", "instance": instance.id, "gpu": instance.gpu, "stage": "ready"}
            for instance in running
        ]
        minutes_served = [
            served(
                7 * batches, instance.id, 50.0, gpu=instance.gpu, batches=batches, busySeconds=batches * truth * 0.0403
            )
            for instance in running
        ]
        drift.take(
            readings(second, received_report("n", second, *minutes_served, copies=copies, generation=1, gpus=[]))
        )
        for changed in drift.correct(at(second)):
            if (factor := factor_at(changed.correction, 8, 30)) != factors[-1]:
                factors.append(factor)
    return factors


@pytest.mark.slow
def test_a_truth_that_is_slower_is_learnt_and_kept() -> None:
    assert run(Drift(), 1.15, 90) == [1.0, 1.15]


@pytest.mark.slow
def test_a_profile_that_is_right_is_left_alone() -> None:
    assert run(Drift(), 1.01, 60) == [1.0]


@pytest.mark.slow
def test_a_new_leader_continues_from_the_stored_history(database: Database) -> None:
    old = Drift()
    run(old, 1.15, 60)
    rows = [write_correction(correction, at(3600)) for correction in old.known.values()]
    for _ in range(2):
        database.write(lambda connection: corrections.keep(connection, rows))
    new = Drift()
    new.restore(map(read_correction, database.read(corrections.read_all)))
    assert new.known == old.known
    assert run(new, 1.15, 60, start=60) == [1.15]


def test_the_last_minute_of_each_running_instance_is_known() -> None:
    drift = Drift()
    run(drift, 1.0, 5)
    assert {name: (found.batch, round(found.latency_ms)) for name, found in drift.measured.items()} == {
        "a": (8, 50), "b": (8, 50),
    }  # fmt: skip
    assert {found.at for found in drift.measured.values()} == {at(180)}
    drift.expects(predict_running(question(PROFILE, instance("b", 1))), {})
    assert set(drift.measured) == {"b"}

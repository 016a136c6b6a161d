"""Reports that cannot be true, and those that were spoiled on their way, move no belief."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from agents.contract.reports import InstanceMinute
from app.control.observe.drift.drift import Drift
from app.control.observe.drift.minutes import is_credible
from app.control.observe.drift.predict import Prediction, predict_running, profile_places
from tests.app.control.observe.drift.test_drift import KEY, PROFILE, instance, question
from tests.app.control.observe.drift.test_minutes import SEARCH
from tests.support.reports import instance as reported_instance
from tests.support.soak import scaled
from tests.support.words import at, fast, readings, received_report, served


def minute(latency_ms: float = 25.0, **fields: Any) -> InstanceMinute:
    """A minute of 300 batches of 6 requests, 20 ms each, unless it says otherwise."""
    known: dict[str, Any] = {"requests": 1800, "latencyCounts": fast(1800, latency_ms), "busySeconds": 6.0}
    return msgspec.convert(reported_instance("i-1", **(known | {"batches": 300} | fields)), InstanceMinute)


def credible(said: InstanceMinute, prediction: Prediction = SEARCH) -> bool:
    return is_credible(said, said.batches, prediction)


def test_a_usual_minute_is_credible() -> None:
    assert credible(minute())
    assert credible(minute(latency_ms=200.0))  # they waited
    assert credible(minute(busySeconds=7.2))
    assert credible(minute(busySeconds=0.9 * 6.0))


@pytest.mark.parametrize(
    "fields",
    [
        {"busySeconds": 90.0},  # longer than a minute
        {"busySeconds": 0.0},
        {"batches": 100},  # with 18 requests each, of 8 at most
        {"busySeconds": 30.0},  # 100 ms a batch, though all answers came within 25
        {"busySeconds": 3.0, "latency_ms": 60.0},  # 10 ms a batch, idle for most of the time, yet no answer in 40
    ],
)
def test_what_contradicts_other_counts_is_not(fields: dict[str, Any]) -> None:
    assert not credible(minute(**fields))


def test_numbers_that_are_none_are_refused() -> None:
    for value in (float("nan"), float("inf")):
        assert not is_credible(replace_busy(minute(), value), 300.0, SEARCH)
        assert not is_credible(minute(), value, SEARCH)


def replace_busy(said: InstanceMinute, busy_seconds: float) -> InstanceMinute:
    return msgspec.structs.replace(said, busy_seconds=busy_seconds)


def course(drift: Drift, minutes: int, spoil: Any) -> None:
    """Runs three right instances, and one whose minutes are spoiled."""
    running = [instance(name, gpu) for gpu, name in enumerate("abcd")]
    problem = question(PROFILE, *running)
    drift.expects(predict_running(problem), profile_places(problem, problem.profiles))
    for second in range(5, minutes * 60, 10):
        batches = 10 * (second % 60)
        fields: dict[str, Any] = {"batches": batches, "busySeconds": batches * 0.0403}
        said = [served(7 * batches, each.id, 50.0, gpu=each.gpu, **fields) for each in running]
        said[-1] |= spoil(second // 60, fields)
        copies = [{"id": f"c-{each.id}", "instance": each.id, "gpu": each.gpu, "stage": "ready"} for each in running]
        drift.take(readings(second, received_report("n", second, *said, copies=copies, generation=1, gpus=[])))
        drift.correct(at(second))


def factors(drift: Drift) -> set[float]:
    known = drift.known.get(KEY)
    return {point.factor for point in known.correction.latency} if known else set()


@pytest.mark.parametrize("times", [0.01, 0.5, 0.8, 1.3, 3.0, 1000.0])
def test_one_server_that_lies_moves_nothing(times: float) -> None:
    drift = Drift()
    course(drift, 40, lambda minute, fields: {"busySeconds": times * fields["busySeconds"]})
    assert factors(drift) == set()


def test_spoiled_reports_move_nothing_and_break_nothing() -> None:
    for seed in range(scaled(30, 3)):
        draw = random.Random(seed)
        values = [0, 1e-12, 1, 59.9, 61, 1e6, 1e12]

        def spoil(minute: int, fields: dict[str, Any], draw: random.Random = draw, values: Any = values) -> Any:
            return {
                name: draw.choice(values)
                for name in ("busySeconds", "batches", "batchMean", "memoryGib", "queueMean")
                if draw.random() < 0.4
            }

        drift = Drift()
        course(drift, 30, spoil)
        assert factors(drift) == set()


def test_a_prediction_with_a_batch_timeout_leaves_time_for_it() -> None:
    waiting = replace(SEARCH, batch_timeout_ms=50.0)
    assert credible(minute(busySeconds=5.0, latency_ms=60.0), waiting)
    assert not credible(minute(busySeconds=5.0, latency_ms=60.0))

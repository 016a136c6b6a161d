"""The minutes that count: those that went as planned, on a GPU where nothing came, went or was throttled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.control.observe.drift.minutes import NodeMinutes, Observation, ShedSince, no_shedding
from app.control.observe.drift.predict import Prediction
from app.control.observe.drift.tuning import DriftTuning
from tests.support.words import at, received_report, served

SEARCH = Prediction(
    key="resnet/fp16/v100", profile=7, node="n", gpu=0, batch=8, sm_percent=30, batch_timeout_ms=0.0, exec_ms=20.0,
    memory_gib=2.0, power_w=100.0, idle_w=40.0, neighbours=frozenset(), neighbour_jobs=0, impacts=(), slo_ms=100.0,
    percentile=98.0, rate_per_second=40.0,
)  # fmt: skip


def copy(name: str = "c-1", instance: str = "i-1", stage: str = "ready", gpu: int = 0) -> dict[str, Any]:
    return {"id": name, "instance": instance, "gpu": gpu, "stage": stage, "smPercent": 30}


def watched(
    minutes: int = 4, predicted: Prediction = SEARCH, minute_fields: dict[str, Any] | None = None,
    at_second: dict[int, dict[str, Any]] | None = None, generation: int = 1, exec_ms: float = 23.0,
    shed_since: ShedSince = no_shedding,
) -> list[Observation]:  # fmt: skip
    """Reports every ten seconds; `at_second` changes the content of those from then on."""
    node, found = NodeMinutes(), list[Observation]()
    for second in range(5, minutes * 60 + 10, 10):
        within = second % 60
        batches = 5 * within
        minute = {"batches": batches, "busySeconds": batches * exec_ms / 1000, "gpu": 0, **(minute_fields or {})}
        fields: dict[str, Any] = {"copies": [copy()], "generation": generation}
        fields |= (at_second or {}).get(second, {})
        word = received_report(
            "n", second, served(**{"requests": 30 * within, "latency_ms": 30.0, **minute}), **fields
        ).report
        found += node.next(word, {"i-1": predicted}, DriftTuning(), shed_since)
    return found


def test_a_minute_tells_how_long_batches_took_and_how_full_they_were() -> None:
    found = watched()
    assert [observation.at for observation in found] == [at(120), at(180)]
    assert [observation.exec_ratio for observation in found] == [pytest.approx(1.15)] * 2
    assert found[0].fill == pytest.approx(6 / 8)
    assert found[0].late is False


def test_an_instance_that_has_just_become_ready_is_cold() -> None:
    warming = {second: {"copies": [copy(stage="warming")]} for second in range(5, 70, 10)}
    assert [observation.at for observation in watched(5, at_second=warming)] == [at(180), at(240)]


@pytest.mark.parametrize(
    "fields",
    [
        {"copies": [copy(), copy("c-2", stage="warming")]},  # handed over
        {"copies": [copy(), copy("c-9", "i-9", "draining")]},  # a neighbour goes
        {"copies": [copy(), copy("c-9", "i-9")]},  # one came, and went between two words
        {"gpus": [{"index": 0, "throttleReasons": ["sw_thermal"]}]},
        {"gpus": [{"index": 0, "health": "degraded"}]},
        {"excursions": [{"knob": "batch", "gpu": 0, "planned": 8, "value": 4, "reason": "over_slo",
                         "since": at(0).isoformat(), "instance": "i-1"}]},
        {"excursions": [{"knob": "clockMhz", "gpu": 0, "planned": 8, "value": 4, "reason": "over_cap",
                         "since": at(0).isoformat()}]},
    ],
)  # fmt: skip
def test_a_minute_with_anything_off_plan_in_it_does_not_count(fields: dict[str, Any]) -> None:
    assert [observation.at for observation in watched(at_second={145: fields})] == [at(180)]


def test_what_happens_on_another_gpu_does_not_matter() -> None:
    elsewhere = {145: {"copies": [copy(), copy("c-9", "i-9", "warming", 1)]}}
    assert len(watched(at_second=elsewhere)) == 2


def test_a_minute_in_which_a_new_assignment_came_does_not_count() -> None:
    assert [observation.at for observation in watched(at_second={175: {"generation": 2}})] == [at(180)]


def test_a_new_assignment_that_changes_neither_its_batch_nor_its_clock_does_not_matter() -> None:
    known = {"requested": {"batch": 8.0, "smPercent": 30.0}, "applied": {"batch": 8.0}}
    clock = {"index": 0, "requested": {"clockMhz": 1500}, "applied": {"clockMhz": 1500}}
    every = {second: {"gpus": [clock], "generation": 1 + (second > 150)} for second in range(5, 300, 10)}
    assert [found.at for found in watched(at_second=every, minute_fields=known)] == [at(120), at(180)]
    slower = {**clock, "applied": {"clockMhz": 1200}}
    every |= {second: {"gpus": [slower], "generation": 2} for second in range(155, 300, 10)}
    assert [found.at for found in watched(at_second=every, minute_fields=known)] == [at(180)]


def test_an_instance_in_another_shape_than_planned_does_not_count() -> None:
    assert watched(minute_fields={"smPercent": 40}) == []
    assert watched(minute_fields={"applied": {"batch": 4}}) == []
    assert len(watched(minute_fields={"applied": {"batch": 8}})) == 2


def test_an_instance_with_other_company_than_planned_does_not_count() -> None:
    assert watched(predicted=replace(SEARCH, neighbours=frozenset({"i-2"}))) == []
    assert watched(predicted=replace(SEARCH, neighbour_jobs=1)) == []


def test_a_minute_that_was_not_reported_whole_does_not_count() -> None:
    node, found = NodeMinutes(), list[Observation]()
    for second in (5, 15, 125, 135, 185, 195):
        minute = served(30, batches=100, busySeconds=2)
        word = received_report("n", second, minute, copies=[copy()], generation=1).report
        found += node.next(word, {"i-1": SEARCH}, DriftTuning())
    assert found == [] or [observation.at for observation in found] == [at(120)]


def test_too_few_batches_tell_nothing_of_execution() -> None:
    found = watched(minute_fields={"batches": 3, "busySeconds": 0.5})
    assert [observation.exec_ratio for observation in found] == [None, None]


def test_without_a_count_of_batches_their_mean_size_serves() -> None:
    found = watched(minute_fields={"batches": 0, "batchMean": 6.0})
    assert found[0].exec_ratio == pytest.approx(1.15)


def test_promises_missed_at_no_more_than_the_planned_load_are_late() -> None:
    slow = watched(minute_fields={"latencyCounts": [0] * 30 + [1500]})
    assert [observation.late for observation in slow] == [True, True]
    overloaded = watched(minute_fields={"requests": 9000, "latencyCounts": [0] * 30 + [9000]})
    assert [observation.late for observation in overloaded] == [None, None]


def test_a_minute_in_which_requests_were_turned_away_tells_how_long_batches_took_and_nothing_of_lateness() -> None:
    slow = {"latencyCounts": [0] * 30 + [1500]}
    found = watched(minute_fields=slow, shed_since=lambda since: {"shop/search"} if since <= at(120) else set())
    assert [observation.late for observation in found] == [None, True]
    assert [observation.exec_ratio for observation in found] == [pytest.approx(1.15)] * 2


def test_a_burst_of_misses_is_no_missed_promise() -> None:
    some = watched(minute_fields={"latencyCounts": [0] * 10 + [1446] + [0] * 20 + [54]})  # 3.6 % in an SLO of 100 ms
    assert [observation.late for observation in some] == [False, False]


def test_only_memory_beyond_the_assigned_counts() -> None:
    assert [observation.memory_ratio for observation in watched(minute_fields={"measured": {"memoryGib": 2.0}})] == [
        None,
        None,
    ]
    assert watched(minute_fields={"measured": {"memoryGib": 2.4}})[0].memory_ratio == pytest.approx(1.2)


def test_watts_are_held_against_the_time_that_instances_were_busy() -> None:
    gpus = {second: {"gpus": [{"index": 0, "powerMeanW": 40 + 55}]} for second in range(5, 300, 10)}
    found = watched(at_second=gpus, minute_fields={"busySeconds": 30.0})
    assert found[0].power_ratio == pytest.approx(1.1)

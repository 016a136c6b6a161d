"""Reports and assignments as bytes: what is understood, what is refused, and one version apart either way."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.contract import (
    CONTRACT,
    Answer,
    AssignedInstance,
    Assignment,
    Frame,
    GpuMinute,
    InstanceMinute,
    Report,
    misnamed,
)

MOMENT = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
# As sent by an agent of contract 1 in 2026; never to be changed.
RECORDED_REPORT = (
    b'{"node":"node-1","incarnation":1772368200,"sequence":7,"at":"2026-03-01T12:30:11.25Z",'
    b'"minute":"2026-03-01T12:30:00Z","bootId":"6f1c","gpus":[{"index":0,"utilizationPercent":51.5,'
    b'"energyCounterMj":9000000000000}],"instances":[{"id":"a","gpu":0,"tenant":"shop","service":"search",'
    b'"requests":3,"latencyCounts":[0,3]}],"usage":[{"id":"u","instance":"a","gpu":0,'
    b'"startedAt":"2026-03-01T12:30:00Z","service":"search"}]}'
)
RECORDED_ASSIGNMENT = (
    b'{"node":"node-1","version":4,"epoch":2,"generation":9,"plan":"p","instances":[{"id":"a","gpu":0,'
    b'"service":"search","smPercent":30,"batch":{"planned":8,"min":1,"max":16}}],"gpus":[{"index":0,"capW":250}]}'
)


def decode(raw: bytes) -> Report:
    return msgspec.json.decode(raw, type=Report)


def test_a_recorded_report_is_still_read() -> None:
    report = decode(RECORDED_REPORT)
    assert (report.node, report.sequence, report.contract) == ("node-1", 7, 1)
    assert report.instances[0].latency_counts == (0, 3)
    assert report.gpus[0].energy_counter_mj == 9_000_000_000_000


def test_a_recorded_assignment_is_still_read() -> None:
    assignment = msgspec.json.decode(RECORDED_ASSIGNMENT, type=Assignment)
    assert assignment.instances[0].batch == Frame(8, 1, 16)
    assert assignment.gpus[0].cap_w == 250


def test_fields_of_a_newer_agent_are_passed_over() -> None:
    newer = RECORDED_REPORT.replace(b'"bootId"', b'"contract":2,"fromTheFuture":{"deep":[1,"\\u0000"]},"bootId"')
    report = decode(newer)
    assert report.contract == CONTRACT + 1
    assert report.boot_id == "6f1c"


def test_an_answer_of_a_newer_server_is_understood_by_this_agent() -> None:
    newer = b'{"accepted":true,"assignmentVersion":3,"now":"2026-03-01T12:30:11Z","mood":"good"}'
    assert msgspec.json.decode(newer, type=Answer).assignment_version == 3


def test_two_versions_ahead_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="contract"):
        decode(RECORDED_REPORT.replace(b'"bootId"', b'"contract":3,"bootId"'))


@pytest.mark.parametrize(
    "wrong",
    [
        b'"utilizationPercent":-1',
        b'"utilizationPercent":101',
        b'"utilizationPercent":1e308',
        b'"utilizationPercent":1e400',
        b'"utilizationPercent":NaN',
        b'"utilizationPercent":Infinity',
        b'"utilizationPercent":true',
        b'"utilizationPercent":"51.5"',
        b'"utilizationPercent":' + b"9" * 5000,
    ],
)
def test_numbers_that_are_none_are_refused(wrong: bytes) -> None:
    with pytest.raises((msgspec.ValidationError, msgspec.DecodeError)):
        decode(RECORDED_REPORT.replace(b'"utilizationPercent":51.5', wrong))


@pytest.mark.parametrize("name", ["Node", "a b", "a\\n", "a\\u0000", "", "x" * 64, "-a", "../etc"])
def test_a_node_name_is_a_dns_label(name: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="node"):
        decode(RECORDED_REPORT.replace(b'"node":"node-1"', b'"node":"%s"' % name.encode()))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (InstanceMinute(id="a b", gpu=0, service="s"), "without spaces"),
        (InstanceMinute(id="a\n", gpu=0, service="s"), "without spaces"),
        (InstanceMinute(id="a", gpu=0, service="S"), "DNS label"),
        (InstanceMinute(id="a", gpu=0, service="s\n"), "DNS label"),
        (InstanceMinute(id="a", gpu=0, tenant="-", service="s"), "DNS label"),
        (InstanceMinute(id="a", gpu=0), "a service or a job"),
        (InstanceMinute(id="a", gpu=0, service="s", job="j"), "not both"),
    ],
)
def test_an_instance_is_called_what_can_be_shown(wrong: InstanceMinute, said: str) -> None:
    assert said in misnamed([wrong])
    assert said in misnamed([wrong])  # being seen once makes nothing right
    assert misnamed([InstanceMinute(id="a", gpu=0, service="s")]) == ""


@given(
    st.lists(
        st.builds(
            GpuMinute,
            index=st.integers(0, 1023),
            utilization_percent=st.floats(0, 100),
            energy_counter_mj=st.integers(0, 2**63 - 1),
            health=st.sampled_from(["ok", "degraded", "failed", "unknown"]),
        ),
        max_size=5,
    )
)
def test_what_is_sent_is_what_is_read(gpus: list[GpuMinute]) -> None:
    report = Report(node="n", incarnation=1, sequence=2, at=MOMENT, minute=MOMENT, gpus=tuple(gpus))
    assert decode(msgspec.json.encode(report)) == report


def test_an_assignment_is_what_it_was_after_the_journey() -> None:
    instances = (AssignedInstance("a", 0, service="s", args={"model": "m", "n": 1}, batch=Frame(4, 1, 8)),)
    sent = Assignment("n", 1, 2, 3, instances=instances)
    assert msgspec.json.decode(msgspec.json.encode(sent), type=Assignment) == sent

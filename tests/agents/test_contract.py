"""Reports and assignments as bytes: what is accepted, what is refused, and one version apart in either direction."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.contract import fields
from agents.contract.assignments import AssignedInstance, Assignment, Frame
from agents.contract.fields import CONTRACT
from agents.contract.reports import Answer, GpuMinute, InstanceMinute, Report, find_misnamed
from agents.keeper.copies import Stage
from tests.agents import contract_1

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
# As sent in November 2026, with copies, what is held back, excursions and limits; never to be changed either.
RECORDED_LATER_REPORT = (
    b'{"node":"node-1","incarnation":1795190400,"sequence":8,"at":"2026-11-20T12:30:11.250000Z",'
    b'"minute":"2026-11-20T12:30:00Z","bootId":"6f1c","health":"degraded","epoch":2,"generation":9,'
    b'"inventory":{"gpus":[{"index":0,"uuid":"GPU-0","memoryGib":79.6,"address":"0000:17:00.0",'
    b'"capabilities":["mps","lock_clocks"],"smCount":108}],"templates":["gpuwright-serve"],"agentVersion":"0.1.0"},'
    b'"gpus":[{"index":0,"health":"failed","utilizationPercent":51.5,"reason":"xid_79","fenced":true,'
    b'"requested":{"clockMhz":1200},"applied":{"clockMhz":1200}}],"instances":[{"id":"a","gpu":0,"tenant":"shop",'
    b'"service":"search","requests":3,"latencyCounts":[0,3],"measured":{"smPercent":30},"source":"gateway"},'
    b'{"id":"t","gpu":0,"tenant":"lab","job":"finetune","steps":120}],"copies":[{"id":"a.2","instance":"a","gpu":0,'
    b'"stage":"warming","smPercent":30,"memoryGib":2,"address":"127.0.0.1:9001"},{"id":"a.1","instance":"a","gpu":0,'
    b'"stage":"ready","smPercent":20,"memoryGib":2,"address":"127.0.0.1:9000","routed":true}],"heldBack":['
    b'{"instance":"b","reason":"no_room_to_hand_over","message":"needs 10 % more","needsSmPercent":10}],"excursions":['
    b'{"knob":"clockMhz","gpu":0,"planned":1200,"value":900,"reason":"over_cap","since":"2026-11-20T12:29:00Z"}],'
    b'"repartition":[0]}'
)
RECORDED_LATER_ASSIGNMENT = (
    b'{"node":"node-1","version":4,"epoch":2,"generation":9,"plan":"p","instances":[{"id":"a","gpu":0,'
    b'"service":"search","smPercent":30,"batch":{"planned":8,"min":1,"max":16},"sloMs":80,"percentile":98,'
    b'"dedicated":true},{"id":"t","gpu":0,"job":"finetune","preemptible":false}],"gpus":[{"index":0,"uuid":"GPU-0",'
    b'"clockMhz":{"planned":1200,"min":900,"max":1400},"capW":250}],"handover":"strict","handoverSeconds":60,'
    b'"clientsPerGpu":16,"sameModelPerGpu":2}'
)


def decode(raw: bytes) -> Report:
    return msgspec.json.decode(raw, type=Report)


def test_case_32_a_recorded_report_is_still_read() -> None:
    report = decode(RECORDED_REPORT)
    assert (report.node, report.sequence, report.contract) == ("node-1", 7, 1)
    assert report.instances[0].latency_counts == (0, 3)
    assert report.gpus[0].energy_counter_mj == 9_000_000_000_000


def test_case_32_a_recorded_assignment_is_still_read() -> None:
    assignment = msgspec.json.decode(RECORDED_ASSIGNMENT, type=Assignment)
    assert assignment.instances[0].batch == Frame(8, 1, 16)
    assert assignment.gpus[0].cap_w == 250


def test_case_32_fields_of_a_newer_agent_are_passed_over() -> None:
    newer = RECORDED_REPORT.replace(b'"bootId"', b'"contract":2,"fromTheFuture":{"deep":[1,"\\u0000"]},"bootId"')
    report = decode(newer)
    assert report.contract == CONTRACT + 1
    assert report.boot_id == "6f1c"


def test_case_32_an_answer_of_a_newer_server_is_understood_by_this_agent() -> None:
    newer = b'{"accepted":true,"assignmentVersion":3,"now":"2026-03-01T12:30:11Z","mood":"good"}'
    assert msgspec.json.decode(newer, type=Answer).assignment_version == 3


def test_case_32_a_later_recorded_report_is_still_read_and_written_alike() -> None:
    report = decode(RECORDED_LATER_REPORT)
    assert (report.contract, [copy.stage for copy in report.copies]) == (1, ["warming", "ready"])
    assert (report.held_back[0].needs_sm_percent, report.excursions[0].value, report.repartition) == (10, 900, (0,))
    assert (report.gpus[0].fenced, report.gpus[0].reason, report.instances[1].steps) == (True, "xid_79", 120)
    assert msgspec.json.decode(msgspec.json.encode(report)) == msgspec.json.decode(RECORDED_LATER_REPORT)


def test_case_32_a_later_recorded_assignment_is_still_read_and_written_alike() -> None:
    assignment = msgspec.json.decode(RECORDED_LATER_ASSIGNMENT, type=Assignment)
    assert (assignment.handover, assignment.handover_seconds, assignment.clients_per_gpu) == ("strict", 60, 16)
    assert (assignment.instances[0].slo_ms, assignment.instances[1].preemptible) == (80, False)
    recorded = msgspec.json.decode(RECORDED_LATER_ASSIGNMENT)
    del recorded["gpus"][0]["uuid"]  # which no agent needs: an index is a place
    assert msgspec.json.decode(msgspec.json.encode(assignment)) == recorded


def test_case_32_an_old_server_reads_what_a_new_agent_says() -> None:
    old = msgspec.json.decode(RECORDED_LATER_REPORT, type=contract_1.Report)
    assert (old.contract, old.health, old.generation) == (1, "degraded", 9)
    assert old.instances[0].latency_counts == (0, 3)
    assert contract_1.misnamed(old.instances) == ""


def test_case_32_an_old_agent_reads_what_a_new_server_asks() -> None:
    old = msgspec.json.decode(RECORDED_LATER_ASSIGNMENT, type=contract_1.Assignment)
    assert (old.instances[0].batch, old.gpus[0].cap_w) == (contract_1.Frame(8, 1, 16), 250)


def test_case_32_a_new_agent_reads_the_answers_of_an_old_server() -> None:
    now = datetime(2026, 3, 1, 12, 30, 11, tzinfo=UTC)
    raw = msgspec.json.encode(contract_1.Answer(True, 3, now, (contract_1.Dropped("telemetry", "future"),), 9))
    read = msgspec.json.decode(raw, type=Answer)
    assert (read.assignment_version, read.dropped[0].reason, read.incarnation) == (3, "future", 9)


@pytest.mark.parametrize(
    ("known", "newer"),
    [
        (b'"stage":"warming"', b'"stage":"hibernating"'),
        (b'"health":"failed"', b'"health":"recovering"'),
        (b'"health":"degraded"', b'"health":"dreaming"'),
        (b'"reason":"xid_79"', b'"reason":"nvlink:7.down"'),
        (b'"reason":"no_room_to_hand_over"', b'"reason":"no_host_memory"'),
        (b'"source":"gateway"', b'"source":"envoy"'),
    ],
)
def test_case_32_a_word_of_a_newer_agent_is_kept_and_refuses_nothing(known: bytes, newer: bytes) -> None:
    assert known in RECORDED_LATER_REPORT
    report = decode(RECORDED_LATER_REPORT.replace(known, newer))
    assert newer in msgspec.json.encode(report)


def test_case_32_a_way_to_hand_over_that_is_not_known_refuses_no_assignment() -> None:
    newer = RECORDED_LATER_ASSIGNMENT.replace(b'"strict"', b'"blue_green"')
    assert msgspec.json.decode(newer, type=Assignment).handover == "blue_green"


@pytest.mark.parametrize("word", [b"a b", b"<b>", b"\\u0000", b"x" * 61, b"\\u202e"])
def test_a_word_is_no_place_for_anything_else(word: bytes) -> None:
    with pytest.raises(msgspec.ValidationError, match="stage"):
        decode(RECORDED_LATER_REPORT.replace(b'"stage":"warming"', b'"stage":"%s"' % word))


def test_case_32_a_message_that_states_no_version_is_of_the_first() -> None:
    """Old agents leave it out; were the default to follow CONTRACT, they would be taken for new ones."""
    assert msgspec.json.decode(RECORDED_ASSIGNMENT, type=Assignment).contract == 1
    assert b'"contract"' not in msgspec.json.encode(decode(RECORDED_REPORT))
    assert CONTRACT == contract_1.CONTRACT, "a new version is stated by both sides: see to who makes the messages"


def test_every_known_word_is_accepted() -> None:
    for word in (*Stage, *get_args(fields.Health)):
        assert decode(RECORDED_LATER_REPORT.replace(b"warming", word.encode())).copies[0].stage == word


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
def test_case_17_numbers_that_are_none_are_refused(wrong: bytes) -> None:
    with pytest.raises((msgspec.ValidationError, msgspec.DecodeError)):
        decode(RECORDED_REPORT.replace(b'"utilizationPercent":51.5', wrong))


@pytest.mark.parametrize("name", ["Node", "a b", "a\\n", "a\\u0000", "", "x" * 64, "-a", "../etc"])
def test_a_node_name_is_a_dns_label(name: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="node"):
        decode(RECORDED_REPORT.replace(b'"node":"node-1"', b'"node":"%s"' % name.encode()))


@pytest.mark.parametrize(
    ("wrong", "message"),
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
def test_an_instance_is_called_what_can_be_shown(wrong: InstanceMinute, message: str) -> None:
    assert message in find_misnamed([wrong])
    assert message in find_misnamed([wrong])  # being seen once makes nothing right
    assert find_misnamed([InstanceMinute(id="a", gpu=0, service="s")]) == ""


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

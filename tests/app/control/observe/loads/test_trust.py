"""A node is believed only about what it was assigned."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from agents.contract.assignments import AssignedInstance, Assignment
from app.control.observe.loads.trust import FORMER_INTERVAL, TrustedInstances
from tests.support.words import NOON, received_report, served

LATER = NOON + timedelta(seconds=30)


def assignment(node: str, version: int, *ids: str) -> tuple[str, int, str]:
    instances = tuple(AssignedInstance(id_, 0, tenant="shop", service="search") for id_ in ids)
    return node, version, msgspec.json.encode(Assignment(node, version, 1, version, instances=instances)).decode()


def spoken_of(trusted: TrustedInstances, node: str, *instances: dict[str, object]) -> list[str]:
    return [instance.id for instance in trusted.filter(received_report(node, 10, *instances).report).instances]


def test_a_node_is_trusted_about_its_assigned_instances() -> None:
    trusted = TrustedInstances()
    trusted.take([assignment("n", 3, "i-1")], NOON)
    assert trusted.version == 3
    assert spoken_of(trusted, "n", served(10)) == ["i-1"]


def test_a_node_is_not_trusted_about_instances_of_other_nodes_or_of_none() -> None:
    trusted = TrustedInstances()
    trusted.take([assignment("n", 3, "i-1"), assignment("liar", 4, "i-2")], NOON)
    assert spoken_of(trusted, "liar", served(10**6), served(10**6, "i-9"), served(5, "i-2")) == ["i-2"]


def test_what_it_runs_for_one_tenant_it_cannot_call_anothers() -> None:
    trusted = TrustedInstances()
    trusted.take([assignment("liar", 4, "i-2")], NOON)
    assert spoken_of(trusted, "liar", served(10**6, "i-2", tenant="bank")) == []


def test_what_left_is_spoken_of_for_a_while() -> None:
    trusted = TrustedInstances()
    trusted.take([assignment("n", 3, "i-1")], NOON)
    trusted.take([assignment("n", 4)], LATER)
    assert spoken_of(trusted, "n", served(10)) == ["i-1"]
    trusted.take([assignment("n", 5)], LATER + FORMER_INTERVAL)
    assert spoken_of(trusted, "n", served(10)) == []


def test_a_held_back_job_of_another_node_is_ignored() -> None:
    trusted = TrustedInstances()
    trusted.take([assignment("n", 3, "i-1")], NOON)
    held = [{"instance": "i-1", "reason": "no_room"}, {"instance": "their-job", "reason": "exited"}]
    word = trusted.filter(received_report("n", 10, heldBack=held).report)
    assert [change.instance for change in word.held_back] == ["i-1"]


def test_a_job_in_host_memory_is_one_of_its_nodes() -> None:
    trusted = TrustedInstances()
    job = AssignedInstance("i-1", 0, tenant="lab", job="train")
    for version, at in ((3, NOON), (4, LATER + FORMER_INTERVAL)):
        body = msgspec.json.encode(Assignment("n", version, 1, version, swapped=(job,))).decode()
        trusted.take([("n", version, body)], at)
    word = trusted.filter(received_report("n", 10, heldBack=[{"instance": "i-1", "reason": "job_done"}]).report)
    assert [held.reason for held in word.held_back] == ["job_done"]

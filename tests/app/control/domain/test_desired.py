"""An equal state of a node is made of the objects that are known already."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from agents.contract.assignments import AssignedGpu
from app.control.domain.desired import NodeDesired
from tests.app.control.formulate.test_repeated import RUNNING

IN_FORCE = max(RUNNING.in_force.values(), key=lambda wanted: len(wanted.instances))


def copied(wanted: NodeDesired) -> NodeDesired:
    return replace(wanted, instances=tuple(msgspec.structs.replace(line) for line in wanted.instances))


def test_an_equal_state_becomes_the_known_one() -> None:
    assert copied(IN_FORCE) is not IN_FORCE
    assert copied(IN_FORCE).sharing(IN_FORCE) is IN_FORCE
    assert copied(IN_FORCE).sharing(None) == IN_FORCE


def test_of_another_state_the_equal_instances_become_the_known_ones() -> None:
    first, *others = copied(IN_FORCE).instances
    assert others
    faster = msgspec.structs.replace(first, rate_per_second=first.rate_per_second + 1)
    found = replace(IN_FORCE, instances=(faster, *others)).sharing(IN_FORCE)
    assert found.instances[0] is faster
    assert all(line is known for line, known in zip(found.instances[1:], IN_FORCE.instances[1:], strict=True))


def test_a_state_with_other_devices_stays_another() -> None:
    other = replace(copied(IN_FORCE), gpus=(*IN_FORCE.gpus, AssignedGpu(99)))
    found = other.sharing(IN_FORCE)
    assert found == other
    assert found.instances == IN_FORCE.instances

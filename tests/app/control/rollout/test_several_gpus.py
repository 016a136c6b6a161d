"""Rollouts of instances on several GPUs: each of them must be free, and the old copy serves until the new one does."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agents.contract.assignments import AssignedInstance
from app.control.domain.desired import Desired
from app.control.rollout.changes import WrongTarget, changes, components
from app.control.rollout.ordering.finding import order
from app.control.rollout.rules import RolloutState
from tests.app.control.rollout.fleets import a_job, a_node, advance, all_serve, an_instance, replace_struct, rules
from tests.app.control.rollout.stepping import steps_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def wide(id_: str, gpus: tuple[int, ...], service: str = "chat", rate: float = 1.0) -> AssignedInstance:
    """An instance of a language model that holds these GPUs whole."""
    made = an_instance(id_, service, gpus[0], 100.0, 16.0, rate)
    return replace_struct(made, gpus=gpus)


def steps(assigned: Desired, target: Desired) -> list[list[str]]:
    """Returns what is assigned to n1 after each step."""
    found = order(assigned, target, rules())
    assert not found.stuck
    return [[instance.id for instance in step["n1"].instances] for step in steps_of(assigned, found, rules())]


def test_a_move_starts_on_free_gpus_before_the_old_copy_ends() -> None:
    old, new = wide("old", (0, 1)), wide("new", (2, 3))
    assert steps({"n1": a_node(old)}, {"n1": a_node(new)}) == [["new", "old"], ["new"]]


def test_it_waits_until_every_one_of_its_gpus_is_free() -> None:
    there = an_instance("there", "search", 1)
    beside = an_instance("beside", "search", 2)
    found = steps({"n1": a_node(there)}, {"n1": a_node(wide("new", (0, 1)), beside)})
    assert found[0] == ["beside", "there"]
    assert found[-1] == ["beside", "new"]
    assert not any({"new", "there"} <= set(step) for step in found)


def test_a_job_leaves_its_second_gpu_first() -> None:
    found = steps({"n1": a_node(a_job("job", gpu=1))}, {"n1": a_node(wide("new", (0, 1)))})
    assert found == [[], ["new"]]


def test_a_job_on_several_gpus_moves_first_where_a_service_needs_any_one_of_them() -> None:
    old, new = (
        replace_struct(a_job(id_, gpu=gpus[0], sm=100, memory=16), gpus=gpus)
        for id_, gpus in (("old", (0, 1)), ("new", (2, 3)))
    )
    before, after = an_instance("s1", "search", 2, 100), an_instance("s2", "search", 1, 100)
    found = steps({"n1": a_node(old, before)}, {"n1": a_node(new, after)})
    assert found[0] == ["s1"]
    assert found[-1] == ["new", "s2"]


def test_changes_that_share_any_gpu_belong_together() -> None:
    todo = changes(
        {"n1": a_node(an_instance("there", "search", 3))}, {"n1": a_node(wide("new", (2, 3)), an_instance("x", "y", 0))}
    )
    assert sorted(sorted(change.id for change in part) for part in components(todo)) == [["new", "there"], ["x"]]


def test_other_gpus_need_another_id() -> None:
    with pytest.raises(WrongTarget, match="from GPU 0 and 1 to 0 and 2 of n1"):
        changes({"n1": a_node(wide("a", (0, 1)))}, {"n1": a_node(wide("a", (0, 2)))})


def test_a_copy_that_is_leaving_holds_all_its_gpus() -> None:
    old, new = wide("old", (0, 1), "other"), an_instance("new", "search", 1)
    assigned, target = {"n1": a_node(old)}, {"n1": a_node(new)}
    step = advance(target, assigned, all_serve(assigned), RolloutState(), rules(), NOW)
    assert [line.id for line in step.desired["n1"].instances] == []
    again = advance(target, step.desired, all_serve(assigned), step.state, rules(), NOW)
    assert [line.id for line in again.desired["n1"].instances] == []

"""Of an assignment only its own node is believed, and failures outlive the plan whose steps failed."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from agents.contract.assignments import AssignedInstance, Assignment
from agents.contract.reports import Report
from app.control.domain.failures import PlaceFailure
from app.control.domain.snapshot import Snapshot
from app.control.observe.observer import Observer
from app.control.rollout.life import begin
from app.control.rollout.rules import RolloutState
from app.nodes.intake import Intake
from app.store.database import clock, lease
from app.store.database.database import Database
from app.store.fleet import assignments
from app.store.plans import plans
from app.store.plans.plans import PlanDraft
from tests.app.control.rollout.fleets import rules
from tests.support.reports import report


def test_a_node_cannot_say_that_anothers_instance_is_gone(database_url: str) -> None:
    database = Database(database_url, pool_size=2, direct=True)

    def body(version: int) -> str:
        instances = (AssignedInstance("i-1", 0, tenant="shop", service="search"),)
        return msgspec.json.encode(Assignment("true", version, 1, 1, instances=instances)).decode()

    database.write(lambda connection: assignments.write(connection, 1, [assignments.AssignmentDraft("true", 1, body)]))
    intake = Intake(database, timedelta(days=1))
    for node, stage in (("true", "ready"), ("liar", "gone")):
        copy = {"id": f"{node}.1", "instance": "i-1", "gpu": 0, "stage": stage}
        sent = report(node, copies=[copy], generation=2**40)
        intake.keep([msgspec.convert(sent, Report)], [msgspec.json.encode(sent)])
    assert database.read(Observer().view).status.instances["i-1"].stage == "ready"
    database.close()


@pytest.mark.slow
def test_failures_and_suspects_outlive_the_plan_whose_steps_failed(database_url: str) -> None:
    database = Database(database_url, pool_size=2, direct=True)
    database.write(lambda c: lease.take(c, "a", 1e9))
    at = database.read(clock.now)
    failures = tuple(PlaceFailure("shop/a", place, at.timestamp()) for place in (("n1", 0), ("n2", 0), ("n3", 1)))

    def record(base: int) -> int:
        draft = PlanDraft("full", "rolling", b"{}", b"{}", [], base=base)
        return database.write(lambda c: plans.record(c, 1, draft)) or 0

    def settle(generation: int, state: RolloutState) -> None:
        rollout = msgspec.to_builtins(state)
        assert database.write(lambda c: plans.settle(c, generation, "rolling", "rolling", rollout))

    def look() -> Snapshot:
        return database.read(lambda c: Observer().snapshot(c, 1, lambda _: {}))

    settle(record(0), RolloutState(failures=failures, suspects=("shop/a",)))
    stopped = look()
    assert stopped.failed_places == {"shop/a": tuple(failure.place for failure in failures)}
    assert stopped.resting.keys() == {"shop/a"}
    assert stopped.suspects == ("shop/a",)
    generation = record(1)
    before_its_first_step = look()
    inherited = database.read(plans.read_plan_in_force)
    assert inherited
    settle(generation, begin(msgspec.convert(inherited.progress, RolloutState), {}, {}, rules()))
    for now in (before_its_first_step, look()):
        assert now.target == generation
        assert (now.failed_places, now.resting, now.suspects) == (
            stopped.failed_places, stopped.resting, stopped.suspects,
        )  # fmt: skip
    database.close()

"""The consequences of a cycle: gateways, objects, events, metrics and money are informed, once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.access import Principal, Scope
from app.control.decide.decide import draft_changes
from app.control.domain.snapshot import DeclaredObject, ExpectedLoad, NodeStatus, Snapshot
from app.control.formulate.formulate import formulate
from app.control.formulate.running import running_plan
from app.control.solve.inline import Inline
from app.control.tell.announcer import Announcer
from app.control.tell.outcome import CycleOutcome
from app.control.tell.rental import PAUSE, RentalAdvisor
from app.http.metrics import REGISTRY
from app.manifests.model import Key, Kind
from app.manifests.reader import Document
from app.manifests.validate import validate
from app.store.database import lease
from app.store.database.database import Database
from app.store.fleet import endpoints, fleet_minutes
from app.store.plans import outlook
from app.store.world import events, objects
from app.store.world.events import EventFilter
from app.world.declare import declare
from app.world.write import Actor
from tests.support.world import gpu_type, manifest, model, node, profile, service

pytestmark = pytest.mark.slow

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
NOW = [NOON]
WORLD = [
    gpu_type(rentable=8),
    *(node(f"node-{n}", gpus=1) for n in range(3)),
    model("resnet50"),
    profile("resnet50"),
    service("search", "shop", ratePerSecond=200),
    manifest("Tenant", "shop", {"budget": {"perMonth": 1000}}),
    manifest("Policy", "default", {"mode": "auto", "idleMinutes": 1}),
]


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    NOW[0] = NOON
    made = Database(database_url, pool_size=2, direct=True, moment=lambda: NOW[0])
    manifests, faults = validate([Document(str(number), manifest) for number, manifest in enumerate(WORLD)])
    assert not faults
    actor = Actor(Principal("tests", Scope.ADMIN), "request")
    made.write(lambda connection: declare(connection, actor, manifests))
    made.write(lambda connection: lease.take(connection, "a", 3600.0))
    yield made
    made.close()


def snapshot(rate: float, minute: int, mode: str) -> Snapshot:
    declared = []
    for document in WORLD:
        spec: Any = document["spec"]
        if document["kind"] == "Policy":
            spec = {**spec, "mode": mode}
        metadata = document["metadata"]
        declared.append(DeclaredObject(document["kind"], metadata.get("tenant", ""), metadata["name"], spec))
    return Snapshot(
        at=NOON + timedelta(minutes=minute),
        epoch=1,
        declared=tuple(declared),
        nodes={f"node-{n}": NodeStatus(f"node-{n}", "reporting") for n in range(3)},
        expected={"shop/search": ExpectedLoad(rate, observed_per_second=rate, observed_seconds=3600.0)},
        target=1,
    )


def after(rate: float, minute: int = 0, mode: str = "auto") -> CycleOutcome:
    """A cycle that planned this in one step: its decisions are in force already."""
    snapshot_then = snapshot(rate, minute, mode)
    question = formulate(snapshot_then)
    answer = Inline().solve(question.problem, seconds=60.0, work=2)
    decision = draft_changes(snapshot_then, question, answer)
    after_plan = replace(snapshot_then, in_force=decision.desired)
    return CycleOutcome(after_plan, formulate(after_plan), running_plan(formulate(after_plan).problem), decision)


def announced(database: Database, announcer: Announcer, what: CycleOutcome) -> bool:
    NOW[0] = what.snapshot.at
    return announcer.announce(1, what)


def conditions(database: Database, key: Key) -> dict[str, Any]:
    stored = database.read(lambda connection: objects.get(connection, key))
    assert stored
    found: Any = stored.status.get("conditions", [])
    return {condition["type"]: condition for condition in found}


SEARCH = Key(Kind.SERVICE, "shop", "search")


def an_announcer(database: Database) -> Announcer:
    return Announcer(database, Inline(), lambda _before, _after: None)


def test_a_fleet_that_serves_says_so_and_names_what_could_be_given_back(database: Database) -> None:
    announcer = an_announcer(database)
    assert announced(database, announcer, after(200.0))
    assert conditions(database, SEARCH)["Planned"]["status"] == "True"
    assert conditions(database, Key(Kind.TENANT, "", "shop"))["WithinBudget"]["status"] == "True"
    limits = database.read(endpoints.read_limits)
    assert limits["shop/search"].shed_share == 0
    assert limits["shop/search"].queue_limit > 0
    assert limits["shop/search"].in_time
    assert all("/" in place and most > 0 for place, most in limits["shop/search"].in_time.items())
    assert database.read(lambda c: outlook.get(c, outlook.MONEY)) == {"heldPerHour": 0.0, "releasable": []}
    [cost] = database.read(lambda c: fleet_minutes.points(c, NOON, NOON + timedelta(hours=1), timedelta(minutes=1)))
    assert (cost.begins, cost.held_cost, cost.planned_cost) == (NOON, 0.0, 1.2)
    assert cost.bound is not None and 0 < cost.bound <= 1.2
    assert announced(database, announcer, after(200.0, minute=2))
    free = database.read(lambda c: outlook.get(c, outlook.MONEY))["releasable"]
    assert len(free) == 2
    assert all(node["perHour"] == 1.2 for node in free)
    assert REGISTRY.get_sample_value("gpuwright_releasable_nodes") == 2
    assert (
        REGISTRY.get_sample_value("gpuwright_service_unserved_per_second", {"tenant": "shop", "service": "search"}) == 0
    )
    found = database.read(lambda c: events.recent(c, EventFilter(reasons=["releasable"])))
    assert {node.name for node in found} == {node["node"] for node in free}


def test_a_fleet_that_is_too_small_sheds_and_says_what_to_rent(database: Database) -> None:
    announcer = an_announcer(database)
    assert announced(database, announcer, after(1500.0))
    planned = conditions(database, SEARCH)["Planned"]
    assert (planned["status"], planned["reason"]) == ("False", "Unserved")
    assert "least change that helps" in planned["message"]
    assert conditions(database, SEARCH)["Degraded"]["reason"] == "Shedding"
    assert database.read(endpoints.read_limits)["shop/search"].shed_share > 0.1
    rent = database.read(lambda c: outlook.get(c, outlook.MONEY))["renting"]
    assert rent["gpus"].keys() == {"v100-16gb"}
    assert rent["serves"] == ["shop/search"]
    reasons = {event.reason for event in database.read(events.recent)}
    assert {"unserved", "shedding", "rent_more"} <= reasons


def test_another_number_of_rentable_gpus_is_another_question() -> None:
    advisor, outcome = RentalAdvisor(Inline()), after(1500.0)
    problem, later = outcome.question.problem, replace(outcome.snapshot, at=outcome.snapshot.at + 2 * PAUSE)
    first = advisor.advise(outcome.snapshot, problem, outcome.plan)
    assert first
    assert sum(first.gpus.values()) > 1
    fewer = advisor.advise(later, replace(problem, spare=dict.fromkeys(problem.spare, 1)), outcome.plan)
    assert fewer
    assert sum(fewer.gpus.values()) == 1


def test_there_is_no_bound_once_more_than_rates_has_changed(database: Database) -> None:
    announcer, outcome = an_announcer(database), after(200.0)
    assert announced(database, announcer, outcome)
    assert REGISTRY.get_sample_value("gpuwright_plan_bound_per_hour")
    assert announced(database, announcer, replace(outcome, changed_since_bound="prices"))
    assert REGISTRY.get_sample_value("gpuwright_plan_bound_per_hour") is None
    assert REGISTRY.get_sample_value("gpuwright_plan_gap_ratio") is None


def test_an_advised_fleet_sheds_nothing(database: Database) -> None:
    assert announced(database, an_announcer(database), after(1500.0, mode="advisory"))
    assert database.read(endpoints.read_limits) == {}
    found = conditions(database, SEARCH)
    assert found["Planned"]["message"].endswith("; the mode is advisory")
    assert found["Degraded"]["status"] == "False"


def test_after_a_rollback_a_lack_names_it_and_no_mode_that_the_policy_does_not_have(database: Database) -> None:
    outcome = after(1500.0, mode="auto")
    held = replace(outcome, snapshot=replace(outcome.snapshot, is_held=True))
    assert announced(database, an_announcer(database), held)
    planned = conditions(database, SEARCH)["Planned"]
    assert planned["message"].endswith("; plans wait for approval since a rollback")


def test_a_leader_of_the_past_tells_nothing(database: Database) -> None:
    assert not an_announcer(database).announce(7, after(1500.0))
    assert database.read(endpoints.read_limits) == {}
    assert "Planned" not in conditions(database, SEARCH)

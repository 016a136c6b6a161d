"""Conditions reach the objects only on change, with an event for each turn, and never from a former leader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from app.access import Principal, Scope
from app.control.domain.events import Reason
from app.control.tell.conditions import Statement
from app.control.tell.statuses import ObjectStatus, Specs, Statements, StatusWriter, make_job_status
from app.manifests.model import Key, Kind
from app.manifests.reader import Document
from app.manifests.validate import validate
from app.store.database import lease, versions
from app.store.database.database import Database
from app.store.world import events, objects
from app.store.world.objects import StoredObject
from app.world import declare
from app.world.write import Actor
from tests.support.world import gpu_type, job, model, profile, service

SEARCH, RANK = (Key(Kind.SERVICE, "shop", name) for name in ("search", "rank"))
PLANNED = Statement("Planned", "True", Reason.ALL_PLANNED, "the plan carries 40 requests a second")
SHORT = Statement("Planned", "False", Reason.UNSERVED, "10 are unserved")


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    made = Database(database_url, pool_size=2, direct=True)
    apply(
        made, [gpu_type(), model("resnet50"), profile("resnet50"), service("search", "shop"), service("rank", "shop")]
    )
    made.write(lambda connection: lease.take(connection, "a", 10.0))
    yield made
    made.close()


def apply(database: Database, world: list[dict[str, Any]]) -> None:
    documents = [Document(str(number), manifest) for number, manifest in enumerate(world)]
    manifests, faults = validate(documents)
    assert not faults
    actor = Actor(Principal("tests", Scope.ADMIN), "request")
    database.write(lambda connection: declare.declare(connection, actor, manifests))


def specs(database: Database) -> Specs:
    found = database.read(lambda connection: objects.get_many(connection, [SEARCH, RANK]))
    return {key: stored.spec for key, stored in found.items()}


def stored(database: Database, key: Key) -> StoredObject:
    found = database.read(lambda connection: objects.get(connection, key))
    assert found
    return found


def conditions(database: Database, key: Key) -> dict[str, Any]:
    found: Any = stored(database, key).status.get("conditions", [])
    return {condition["type"]: condition for condition in found}


def version(database: Database) -> int:
    return database.read(lambda connection: versions.current(connection)["object"][0])


def both(search: Statement, rank: Statement) -> Statements:
    return {SEARCH: ObjectStatus((search,)), RANK: ObjectStatus((rank,))}


def a_writer() -> StatusWriter:
    return StatusWriter(lambda _before, _after: None)


def test_a_status_is_written_once_and_its_changes_are_events(database: Database) -> None:
    writer = a_writer()
    assert writer.write(database, 1, both(PLANNED, SHORT), specs(database)) == 2
    before = version(database)
    assert writer.write(database, 1, both(PLANNED, SHORT), specs(database)) == 0
    assert a_writer().write(database, 1, both(PLANNED, SHORT), specs(database)) == 2, (
        "a new leader looks at all of them"
    )
    assert version(database) == before, "and writes nothing"
    assert writer.write(database, 1, both(PLANNED, PLANNED), specs(database)) == 1
    assert conditions(database, RANK)["Planned"]["status"] == "True"
    found_events = [(event.name, event.reason) for event in database.read(events.recent)]
    assert found_events == [("rank", "all_planned"), ("rank", "unserved")]


@pytest.mark.slow
def test_other_conditions_stay_and_a_changed_spec_is_observed_again(database: Database) -> None:
    writer = a_writer()
    writer.write(database, 1, both(PLANNED, PLANNED), specs(database))
    assert conditions(database, SEARCH).keys() == {"SloAttainable", "Planned"}
    apply(database, [service("search", "shop", ratePerSecond=50)])
    writer.write(database, 1, both(PLANNED, PLANNED), specs(database))
    assert conditions(database, SEARCH)["Planned"]["observedGeneration"] == 2


@pytest.mark.slow
def test_of_a_spec_that_nobody_has_read_yet_nothing_is_said(database: Database) -> None:
    writer, read = a_writer(), specs(database)
    apply(database, [service("search", "shop", ratePerSecond=50)])
    writer.write(database, 1, both(PLANNED, PLANNED), read)
    assert "Planned" not in conditions(database, SEARCH)
    assert conditions(database, RANK)["Planned"]["status"] == "True"
    writer.write(database, 1, both(PLANNED, PLANNED), specs(database))
    assert conditions(database, SEARCH)["Planned"]["observedGeneration"] == 2


def test_under_an_epoch_that_is_over_nothing_is_written(database: Database) -> None:
    writer = a_writer()
    assert writer.write(database, 7, both(PLANNED, SHORT), specs(database)) == 0
    assert "Planned" not in conditions(database, RANK)
    assert writer.write(database, 1, both(PLANNED, SHORT), specs(database)) == 2


def test_what_is_no_longer_declared_is_passed_over(database: Database) -> None:
    gone = Key(Kind.SERVICE, "shop", "gone")
    known = specs(database)
    assert a_writer().write(database, 1, {gone: ObjectStatus((SHORT,))}, known) == 0
    writer = a_writer()  # deleted a moment ago, or there again by the next cycle
    assert writer.write(database, 1, {gone: ObjectStatus((SHORT,))}, {**known, gone: {}}) == 0
    apply(database, [service("gone", "shop")])
    spec = stored(database, gone).spec
    assert writer.write(database, 1, {gone: ObjectStatus((SHORT,))}, {**known, gone: spec}) == 1


@pytest.mark.slow
def test_what_a_jobs_status_no_longer_says_is_gone_and_its_other_conditions_stay(database: Database) -> None:
    key = Key(Kind.JOB, "lab", "tune")
    apply(database, [job("tune", "lab")])
    known = {key: stored(database, key).spec}

    def said(phase: str, **fields: str) -> dict[str, Any]:
        placed = {"type": "Placed", "status": str(phase == "running"), "reason": phase.capitalize(), "message": ""}
        status = {"phase": phase, "progress": 0.0, "conditions": [placed], **fields}
        a_writer().write(database, 1, {key: make_job_status(status)}, known)
        return stored(database, key).status

    a_writer().write(database, 1, {key: ObjectStatus((PLANNED,))}, known)
    assert said("queued", retryAt="2026-11-01T00:00:00.000Z")["retryAt"] == "2026-11-01T00:00:00.000Z"
    running = said("running", node="n-1")
    assert running.keys() == {"conditions", "phase", "progress", "node"}
    assert said("finished").keys() == {"conditions", "phase", "progress"}
    assert conditions(database, key).keys() == {"Planned", "Placed"}


def test_a_jobs_progress_is_news_by_the_hundredth() -> None:
    def job(progress: float, phase: str = "Running", speed: float = 2.0) -> ObjectStatus:
        placed = {"type": "Placed", "status": "True", "reason": phase, "message": f"{progress} of it"}
        fields = {"phase": phase, "progress": progress, "stepsPerSecond": speed}
        return make_job_status({**fields, "conditions": [placed]})

    assert job(0.501).fingerprint == job(0.504).fingerprint
    assert job(0.501).fingerprint != job(0.511).fingerprint
    assert job(0.501).fingerprint != job(0.501, "Starting").fingerprint
    assert job(0.501).fingerprint == job(0.501, speed=2.1).fingerprint
    assert job(0.501).fingerprint != job(0.501, speed=0.0).fingerprint, "else a long job seems to stand still for long"

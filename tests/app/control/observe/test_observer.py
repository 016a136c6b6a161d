"""Nodes report what they run: about an assignment, only the node that has it is believed."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from agents.contract.assignments import AssignedInstance, Assignment
from agents.contract.reports import Report
from app.control.observe.observer import Observer
from app.nodes.intake import Intake
from app.store.database.database import Database
from app.store.fleet import assignments
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

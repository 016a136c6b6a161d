"""A Node's status follows what its agent says of the devices: written on change, and not by every report."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from app.manifests.model import Key, Kind
from app.manifests.reader import Document
from app.manifests.validate import validate
from app.nodes import decoding, device_status
from app.nodes.intake import Intake
from app.nodes.reporting_condition import SYSTEM
from app.problem import HttpProblem
from app.store.database.database import Database
from app.store.world import audit, events, objects
from app.store.world.audit import AuditFilter
from app.store.world.events import EventFilter
from app.store.world.objects import StoredObject
from app.world import declare
from tests.support.postgres import GivenDatabase
from tests.support.reports import report
from tests.support.server import RunningServer
from tests.support.world import gpu_type, node

GPUS = [
    {"index": index, "uuid": f"GPU-{index}", "memoryGib": 15.8, "smCount": 80, "capabilities": ["mps", "lock_clocks"]}
    for index in range(4)
]
INVENTORY = {"gpus": GPUS, "templates": ["gpuwright-serve"], "agentVersion": "0.1.0", "driverVersion": "550.54"}
FENCED = [{"index": 2, "health": "failed", "fenced": True, "reason": "xid_79"}]


class Heard:
    """A database, and reports that reach it as the server's intake brings them there."""

    def __init__(self, url: str, direct: bool = True) -> None:
        self.database = Database(url, pool_size=2, direct=direct)
        self.intake = Intake(self.database, timedelta(days=14))
        self.intake.start()
        self.declare(gpu_type(), node("node-1"))

    def declare(self, *documents: dict[str, Any]) -> None:
        manifests, faults = validate([Document("test", document) for document in documents])
        assert not faults
        self.database.write(lambda c: declare.declare(c, SYSTEM, manifests))

    def report(self, sequence: int, **said: Any) -> None:
        """As sent, and then housekeeping's turn."""
        self.send(sequence, **said)
        self.settle()

    def send(self, sequence: int, **said: Any) -> None:
        raw = json.dumps(report("node-1", sequence, **said)).encode()
        asyncio.run(self.intake.store(decoding.decode_report(raw), raw))

    def settle(self) -> None:
        while self.database.write(device_status.update_device_statuses):
            pass

    @property
    def node(self) -> StoredObject:
        found = self.database.read(lambda c: objects.get(c, Key(Kind.NODE, "", "node-1")))
        assert found is not None
        return found

    @property
    def gpus(self) -> list[Any]:
        return list(self.node.status.get("gpus", []))

    def condition(self, kind: str) -> Any:
        (found,) = [one for one in self.node.status["conditions"] if one["type"] == kind]
        return found

    def close(self) -> None:
        self.intake.stop()
        self.database.close()


@pytest.fixture
def heard(database_url: str) -> Iterator[Heard]:
    made = Heard(database_url)
    yield made
    made.close()


def test_the_status_names_each_device_and_what_the_machine_can(heard: Heard) -> None:
    heard.report(1, inventory=INVENTORY, gpus=FENCED)
    said = heard.node.status
    assert [(gpu["index"], gpu["uuid"], gpu["health"]) for gpu in heard.gpus] == [
        (0, "GPU-0", "ok"),
        (1, "GPU-1", "ok"),
        (2, "GPU-2", "failed"),
        (3, "GPU-3", "ok"),
    ]
    assert (said["templates"], said["agentVersion"], said["driverVersion"]) == (["gpuwright-serve"], "0.1.0", "550.54")
    assert heard.gpus[0]["capabilities"] == ["lock_clocks", "mps"]
    assert heard.condition("InventoryMismatch")["status"] == "False"
    unwell = heard.condition("GpusHealthy")
    assert (unwell["status"], unwell["message"]) == ("False", "GPU 2 (GPU-2) is fenced: xid_79")


@pytest.mark.slow
def test_case_13_a_fenced_gpu_is_one_change_and_its_recovery_another(heard: Heard) -> None:
    heard.report(1, inventory=INVENTORY)
    seen = [heard.node.resource_version]
    for sequence in range(2, 12):
        gpus = FENCED if 4 <= sequence < 8 else [{"index": 2}]
        copies = [{"id": f"a.{sequence}", "instance": "a", "gpu": 0, "stage": "starting"}]
        heard.report(sequence, gpus=gpus, copies=copies)
        seen.append(heard.node.resource_version)
    assert {after - before for before, after in pairwise(seen)} == {0, 1}
    assert seen[-1] - seen[0] == 2
    assert heard.condition("GpusHealthy")["status"] == "True"


@pytest.mark.slow
def test_what_is_not_as_declared_is_a_condition_until_it_is(heard: Heard) -> None:
    heard.report(1, inventory=INVENTORY)
    heard.report(2, inventory={**INVENTORY, "gpus": GPUS[:3]})
    said = heard.condition("InventoryMismatch")
    assert said["status"] == "True"
    assert said["reason"] == "Missing"
    assert said["message"].startswith("4 GPUs are declared, but 3 were found; GPU 3 (GPU-3) is missing; the others")
    assert [gpu["health"] for gpu in heard.gpus] == ["ok", "ok", "ok", "failed"]
    heard.report(3, inventory=INVENTORY)
    assert heard.condition("InventoryMismatch")["status"] == "False"
    assert heard.condition("GpusHealthy")["status"] == "True"


@pytest.mark.slow
def test_new_devices_are_taken_over_with_an_event_and_an_entry_of_the_audit(heard: Heard) -> None:
    heard.report(1, inventory=INVENTORY)
    others = [{**gpu, "uuid": f"GPU-new-{gpu['index']}", "address": f"0{gpu['index']}"} for gpu in GPUS]
    heard.report(2, inventory={**INVENTORY, "gpus": [GPUS[1] | {"index": 0}, *others[1:]]})
    assert [gpu["uuid"] for gpu in heard.gpus] == ["GPU-1", "GPU-new-1", "GPU-new-2", "GPU-new-3"]
    assert heard.condition("InventoryMismatch")["status"] == "False"
    first = "GPU 0 is now GPU-1, which was GPU 1; it was GPU-0"
    found = heard.database.read(lambda c: events.recent(c, EventFilter(reasons=["gpu_replaced"], name="node-1")))
    assert (found[-1].message, found[-1].severity, len(found)) == (first, "warning", 4)
    entries = heard.database.read(lambda c: audit.page(c, 1 << 60, 10, AuditFilter(kind="Node", verb="update")))
    assert (entries[-1]["name"], entries[-1]["detail"], len(entries)) == ("node-1", first, 4)


@pytest.mark.slow
def test_another_declaration_is_compared_anew(heard: Heard) -> None:
    heard.report(1, inventory=INVENTORY)
    heard.declare(node("node-1", gpus=8))
    heard.settle()
    assert "8 GPUs are declared, but 4 were found" in heard.condition("InventoryMismatch")["message"]


@pytest.mark.slow
def test_another_declaration_of_the_type_is_compared_anew(heard: Heard) -> None:
    heard.report(1, inventory={**INVENTORY, "gpus": [{**gpu, "memoryGib": 31.7} for gpu in GPUS]})
    assert "GPU 0 (GPU-0) has 31.7 GiB, but a v100-16gb has 16" in heard.condition("InventoryMismatch")["message"]
    heard.declare(gpu_type(memoryGib=32))
    heard.settle()
    assert heard.condition("InventoryMismatch")["status"] == "False"


def test_a_node_that_says_nothing_of_its_devices_has_no_word_of_them_in_its_status(heard: Heard) -> None:
    heard.report(1)
    assert heard.node.status == {}


def test_what_a_late_report_says_replaces_nothing_newer(heard: Heard) -> None:
    heard.send(5, inventory=INVENTORY, gpus=[{"index": 2}])
    heard.report(4, gpus=FENCED)
    assert heard.condition("GpusHealthy")["status"] == "True"


def test_what_is_said_again_by_another_replica_is_not_taken_for_written(heard: Heard) -> None:
    other = Intake(heard.database, timedelta(days=14))
    heard.send(1, inventory=INVENTORY, gpus=FENCED)
    heard.intake, first = other, heard.intake
    other.start()
    heard.send(2, gpus=[{"index": 2}])
    heard.intake = first
    heard.report(3, gpus=FENCED)  # the words of report 1, which are no longer what is stored
    other.stop()
    assert heard.condition("GpusHealthy")["status"] == "False"


def test_an_inventory_that_names_a_device_twice_is_refused() -> None:
    for twice in ([GPUS[0], {**GPUS[1], "uuid": "GPU-0"}], [GPUS[0], {**GPUS[1], "index": 0}]):
        with pytest.raises(HttpProblem):
            decoding.decode_report(json.dumps(report("node-1", 1, inventory={"gpus": twice})).encode())


@pytest.mark.slow
def test_devices_are_noted_on_every_kind_of_database(each_database: GivenDatabase) -> None:
    made = Heard(each_database.url, each_database.direct)
    made.report(1, inventory=INVENTORY, gpus=FENCED)
    made.report(2, gpus=FENCED)
    assert made.condition("GpusHealthy")["status"] == "False"
    made.close()


@pytest.mark.slow
def test_another_machine_that_joins_under_the_name_is_taken_over_and_named(api: RunningServer) -> None:
    heard = Heard(api.database_url)
    heard.report(1, inventory=INVENTORY)
    one_time = api.request("POST", "/api/v1/jointokens", {"node": "node-1"}).json["token"]
    spec = {"gpuType": "v100-16gb", "gpus": 4, "cpuCores": 48, "memoryGib": 256}
    joined = api.request("POST", "/api/v1/join", {"token": one_time, "node": "node-1", **spec}, token="")
    assert joined.status == 201
    heard.settle()
    assert [gpu["uuid"] for gpu in heard.gpus] == [f"GPU-{n}" for n in range(4)], "until it reports"
    heard.report(2, inventory={**INVENTORY, "gpus": [{**gpu, "uuid": f"GPU-new-{gpu['index']}"} for gpu in GPUS]})
    assert [gpu["uuid"] for gpu in heard.gpus] == [f"GPU-new-{n}" for n in range(4)]
    assert heard.condition("InventoryMismatch")["status"] == "False"
    found = heard.database.read(lambda c: events.recent(c, EventFilter(reasons=["gpu_replaced"])))
    assert {event.message for event in found} == {f"GPU {n} is now GPU-new-{n}; it was GPU-{n}" for n in range(4)}
    heard.close()


@pytest.mark.slow
def test_the_status_has_what_the_node_admits_and_nothing_of_nodes_without_an_allow_list(heard: Heard) -> None:
    heard.report(1, inventory=INVENTORY)
    assert "admitted" not in heard.node.status
    entry = {"name": "counter", "argv": ["{python}", "/srv/app.py", "{integer:1..8}"]}
    heard.report(2, inventory={**INVENTORY, "admitted": [entry]})
    assert heard.node.status["admitted"] == [entry]
    heard.report(3, inventory=INVENTORY)
    assert heard.node.status["admitted"] == []


@pytest.mark.slow
def test_a_node_says_whether_own_runtimes_may_reach_the_metadata_address(heard: Heard) -> None:
    heard.report(1, inventory=INVENTORY)
    with pytest.raises(ValueError, match="got 0"):
        heard.condition("MetadataBlocked")
    reachable = {"blocked": False, "message": "own images may reach it: nft is not installed"}
    heard.report(2, inventory={**INVENTORY, "metadata": reachable})
    found = heard.condition("MetadataBlocked")
    assert (found["status"], found["reason"], found["message"]) == ("False", "Reachable", reachable["message"])
    heard.report(3, inventory={**INVENTORY, "metadata": {"blocked": True, "message": "a rule"}})
    assert heard.condition("MetadataBlocked")["status"] == "True"

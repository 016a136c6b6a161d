"""describe of a node that reports: its devices, what runs there, and what it does not do."""

from __future__ import annotations

from typing import Any

import pytest

from app.nodes import device_status
from app.store.database.database import Database
from tests.cli.conftest import Run
from tests.support.reports import instance, report, send
from tests.support.server import RunningServer

pytestmark = pytest.mark.slow

GPUS = [{"index": n, "uuid": f"GPU-{n}", "memoryGib": 15.8, "smCount": 80} for n in range(4)]
SAID: dict[str, Any] = {
    "inventory": {"gpus": GPUS, "templates": ["gpuwright-serve"]},
    "gpus": [{"index": 2, "health": "failed", "fenced": True, "reason": "xid_79"}],
    "instances": [instance("a")],
    "copies": [
        {"id": "a.2", "instance": "a", "gpu": 0, "stage": "warming", "smPercent": 30, "memoryGib": 2},
        {"id": "a.1", "instance": "a", "gpu": 0, "stage": "ready", "smPercent": 20, "memoryGib": 2, "routed": True},
    ],
    "heldBack": [{"instance": "b", "reason": "no_room_to_hand_over", "message": "full", "needsSmPercent": 10}],
    "excursions": [
        {"knob": "clockMhz", "gpu": 0, "planned": 1200, "value": 900, "reason": "over_cap"}
        | {"since": "2026-11-20T12:00:00Z"}
    ],
    "repartition": [0],
}


def test_a_node_that_never_reported_is_described_by_what_was_declared(world: Run) -> None:
    done = world("describe", "node", "node-1")
    assert done.code == 0
    assert "Copies:" not in done.lines and "GPUs:" not in done.lines


def test_describe_shows_devices_copies_refusals_and_excursions(world: Run, server: RunningServer) -> None:
    assert send(server, server.token("node", node="node-1"), report("node-1", 1, **SAID)).status == 200
    database = Database(server.database_url, pool_size=1)
    while database.write(device_status.update_device_statuses):
        pass
    database.close()
    done = world("describe", "node", "node-1")
    assert done.code == 0, done.err
    cells = [line.split() for line in done.lines]
    assert ["2", "GPU-2", "failed", "yes", "xid_79", "15.8", "GiB", "80", "-"] in cells
    assert ["a.2", "shop/search", "0", "warming", "30", "2", "GiB", "no", "-"] in cells
    assert ["a.1", "shop/search", "0", "ready", "20", "2", "GiB", "yes", "-"] in cells
    assert ["b", "-", "no_room_to_hand_over", "10", "SM%", "full"] in cells
    assert any(line[:6] == ["clockMhz", "0", "-", "1200", "900", "over_cap"] for line in cells)
    assert "Needs a new partition: GPU 0 (it cannot keep both its power cap and its latencies)" in done.lines
    assert any(line[:2] == ["InventoryMismatch", "False"] for line in cells)
    assert any("conditions need attention" in line for line in done.lines)
    assert world("get", "nodes", "--no-headers").lines[0].split()[6] == "False"

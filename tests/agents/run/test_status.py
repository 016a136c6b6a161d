"""What `gpuwright agent status` prints of copies."""

from __future__ import annotations

from typing import Any

from agents.run.status import render_text

STATUS: dict[str, Any] = {
    "node": "node-1", "server": "http://x", "epoch": 1, "generation": 2, "trouble": "", "silentSeconds": 1.0,
    "gatewayAway": "", "draining": [], "reclaimAt": None, "drained": False, "clusterAway": "", "strangers": [],
    "gpus": [], "faults": {}, "heldBack": [],
    "excursions": [], "repartition": [],
}  # fmt: skip


def test_a_job_in_host_memory_is_shown_without_a_share() -> None:
    shape = {"gpu": 0, "smPercent": 30, "memoryGib": 2}
    copies = [{"id": "a.1.1", "stage": "ready", **shape}, {"id": "t.1.2", "stage": "swapped", **shape}]
    lines = [line.split() for line in render_text(STATUS | {"copies": copies}).splitlines()]
    assert lines[-2] == ["a.1.1", "0", "ready", "30", "2"]
    assert lines[-1] == ["t.1.2", "0", "swapped", "-", "-"]


def test_what_its_cluster_says_and_that_it_says_nothing_is_told() -> None:
    text = render_text({**STATUS, "copies": [], "drained": True, "clusterAway": "no route to host"})
    assert "kubectl uncordon" in text
    assert "before its cluster answers: no route to host" in text

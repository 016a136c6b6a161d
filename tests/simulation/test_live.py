"""A simulated fleet of `gpuwright up` is heard again after a restart of everything, and its truth is as before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from app.manifests.offline import DeclaredFiles
from app.store.database.database import Database
from simulation.live import MOST_PER_SECOND, Live
from simulation.truth.physics import Physics
from simulation.world import put
from tests.simulation.worlds import profile, small

pytestmark = pytest.mark.slow

NODE = "node-0"


def report(live: Live, times: int) -> None:
    for _ in range(times):
        live.post.lines[NODE].due = 0.0
        live.post.collect()


def newest(database: Database) -> int:
    """Returns the number of the node's newest report."""
    found = database.read(lambda connection: connection.execute(text("SELECT ordinal FROM node_state")).scalar_one())
    return int(found)


def test_reports_count_after_a_restart_although_an_earlier_run_sent_more_of_them(database_url: str) -> None:
    database = Database(database_url, pool_size=2, direct=True)
    try:
        put(database, small(gpus=2))
        first = Live(database, frozenset({NODE}), frozenset(), None, None)
        memory = first.fleet.nodes[NODE].memory
        memory.incarnation = max(1, memory.incarnation - 1)  # it began a second earlier
        report(first, 5)
        before = newest(database)
        second = Live(database, frozenset({NODE}), frozenset(), None, None)
        report(second, 1)
        assert newest(database) > before
    finally:
        database.close()


def test_clients_send_no_more_requests_than_the_machine_can_take(database_url: str) -> None:
    database = Database(database_url, pool_size=2, direct=True)
    try:
        declared = small(gpus=2)
        service = next(key for key in declared.manifests if key.kind == "Service")
        spec = {**declared.manifests[service].spec, "ratePerSecond": 9_000_000.0}
        put(database, DeclaredFiles({**declared.manifests, service: replace(declared.manifests[service], spec=spec)}))
        live = Live(database, frozenset({NODE}), frozenset(), None, None)
        live.tick()
        assert max(live.fleet.declared.values()) == MOST_PER_SECOND
    finally:
        database.close()


def test_a_made_truth_survives_a_restart_after_which_profiles_say_something_else(
    database_url: str, tmp_path: Path
) -> None:
    database = Database(database_url, pool_size=2, direct=True)
    key, memory = ("a", "fp16", "v100-16gb"), tmp_path / "truth.json"
    try:
        put(database, small(gpus=2))
        live = Live(database, frozenset({NODE}), frozenset(), physics=Physics(3), memory=memory)
        live.tick()
        before = live.fleet.truth.exec_ms(key, 8, 40, [])
        slower = profile("a", speed=0.5)["spec"]
        others = {name: one for name, one in small(gpus=2).manifests.items() if name.name == "a-v100-16gb"}
        put(database, DeclaredFiles({name: replace(one, spec=slower) for name, one in others.items()}))
        again = Live(database, frozenset({NODE}), frozenset(), physics=Physics(3), memory=memory)
        again.tick()
        assert again.fleet.truth.problem.profiles[key].latency_ms[8][0][1] == 192.0
        assert again.fleet.truth.exec_ms(key, 8, 40, []) == before
    finally:
        database.close()

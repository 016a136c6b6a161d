"""A simulated fleet of `gpuwright up` is heard again after a restart of everything."""

from __future__ import annotations

from sqlalchemy import text

from app.store.database.database import Database
from simulation.live import Live
from simulation.world import put
from tests.simulation.worlds import small

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
        first = Live(database, frozenset({NODE}), frozenset())
        memory = first.fleet.nodes[NODE].memory
        memory.incarnation = max(1, memory.incarnation - 1)  # it began a second earlier
        report(first, 5)
        before = newest(database)
        second = Live(database, frozenset({NODE}), frozenset())
        report(second, 1)
        assert newest(database) > before
    finally:
        database.close()

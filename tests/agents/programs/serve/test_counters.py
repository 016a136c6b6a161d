"""The agent reads exactly what the server counts."""

from __future__ import annotations

from agents.contract.fields import LATENCY_EDGES_MS
from agents.programs.serve.server import EDGES_MS, ServerCounters
from agents.talk.scraping import read_served


def test_the_edges_are_those_of_the_contract() -> None:
    assert list(LATENCY_EDGES_MS) == list(EDGES_MS)


def test_what_is_counted_is_read_back_bucket_by_bucket() -> None:
    figures = ServerCounters()
    for seconds in (0.0001, 0.0005, 0.01, 0.01, 7.0, 100.0):
        figures.answered(seconds)
    figures.failed(rejected=True)
    figures.batch(6, 0.5)
    served = read_served("gpuwright", figures.text({"queue": 3, "sm_count": None, "memory_bytes": 2**30}).encode())
    assert served is not None
    assert served.counters.requests == 7
    assert served.counters.errors == 1
    assert served.counters.latency_counts == tuple(figures._latency)
    assert sum(served.counters.latency_counts) == 6
    assert (served.batches, served.batch_mean, served.busy_seconds) == (1, 6.0, 0.5)
    assert (served.queue, served.sm_count, served.memory_gib) == (3, None, 1.0)
    assert served.dropped == 0

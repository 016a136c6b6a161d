"""The percentiles of the view `latency` are those that the console draws, of any histogram."""

from __future__ import annotations

from random import Random

import psycopg
import pytest

from agents.contract.fields import LATENCY_EDGES_MS
from app.control.domain.latencies import quantile_ms

HISTOGRAMS = 60
LOAD = """
    INSERT INTO service_load (tenant, service, at, seconds, requests, latency_counts)
    VALUES ('shop', %s, '2026-03-02 12:00:10Z', 10, 0, %s)
"""


def test_percentiles_in_sql_are_those_of_the_console(database_url: str) -> None:
    draw, made = Random(7), {}
    with psycopg.connect(database_url) as connection:
        for number in range(HISTOGRAMS):
            length = draw.randint(1, len(LATENCY_EDGES_MS) + 1)
            counts = [draw.choice((0, 0, 0, 1, 7, draw.randint(0, 10**6))) for _ in range(length)]
            connection.execute(LOAD, [f"s-{number}", counts])
            if sum(counts):
                made[f"s-{number}"] = counts
        found = connection.execute("SELECT service, answers, p50_ms, p95_ms, p99_ms FROM report.latency").fetchall()
    assert {row[0] for row in found} == set(made)
    for service, answers, *times in found:
        counts = made[service]
        assert answers == sum(counts)
        wanted = [quantile_ms(counts, percentile) for percentile in (50.0, 95.0, 99.0)]
        assert [float(time) for time in times] == pytest.approx(wanted, rel=2e-3), counts

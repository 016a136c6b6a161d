"""The view `demand` has the rates and forecasts that the console draws, before and after hours are rolled up."""

from __future__ import annotations

import psycopg

LOAD = """
    INSERT INTO service_load (tenant, service, at, seconds, requests, planned, low, high, bands, bands_held)
    VALUES ('shop', 'search', '2026-03-02 12:10:00Z', 600, 60000, 72000, 48000, 66000, 1, 1),
           ('shop', 'search', '2026-03-02 12:20:00Z', 600, 66000, 72000, 54000, 66001, 1, 0),
           ('shop', 'tags', '2026-03-02 12:20:00Z', 600, 600, NULL, NULL, NULL, 0, 0)
"""
HOUR = """
    INSERT INTO service_load_hour (tenant, service, hour, seconds, requests, answers, errors, slow, planned, low, high,
        bands, bands_held)
    VALUES ('shop', 'search', '2026-03-02 11:00Z', 3600, 360000, 0, 0, 0, 432000, 288000, 540000, 6, 5)
"""
ASKED = """
    SELECT CAST(hour AT TIME ZONE 'UTC' AS text), service, requests_per_second, planned_per_second, low_per_second,
           high_per_second, forecasts, forecasts_held
    FROM report.demand ORDER BY hour, service
"""


def test_an_hour_has_its_rate_beside_the_mean_edges_of_its_forecasts(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(LOAD)
        connection.execute(HOUR)
        found = [tuple(map(str, row)) for row in connection.execute(ASKED)]
    assert found == [
        ("2026-03-02 11:00:00", "search", "100.000", "120.000", "80.000", "150.000", "6", "5"),
        ("2026-03-02 12:00:00", "search", "105.000", "120.000", "85.000", "110.001", "2", "1"),
        ("2026-03-02 12:00:00", "tags", "1.000", "None", "None", "None", "0", "0"),
    ]

"""What was billed and assigned before there was a table of it is in the table afterwards."""

from __future__ import annotations

import psycopg

from app.store.database import schema
from app.store.database.database import libpq_url

USAGE = """
    INSERT INTO usage_interval (node, id, instance, gpu, gpu_uuid, tenant, service, job, sm_percent, memory_gib,
                                dedicated, started_at, ended_at, evidence)
    VALUES ('node-1', 'a', 'i-a', 0, '', 'shop', 'search', '', 50, 2, false, '2026-01-01Z', '2026-01-02Z', ''),
           ('node-1', 'b', 'i-a', 0, '', 'shop', 'search', '', 20, 4, false, '2026-01-02Z', NULL, ''),
           ('node-2', 'a', 'i-a', 1, '', 'lab', '', 'night', 10, 1, true, '2026-01-03Z', NULL, '')
"""
ASSIGNMENT = """
    INSERT INTO assignment VALUES ('node-1', 1, 1, 1, '{"instances": [
        {"id": "i-a", "gpu": 0, "tenant": "shop", "service": "search", "smPercent": 20, "memoryGib": 4},
        {"id": "i-b", "gpu": 0, "tenant": "lab", "job": "night", "smPercent": 12.5, "memoryGib": 3.3}
    ]}', '2026-01-04Z'), ('node-2', 1, 1, 2, '{}', '2026-01-05Z')
"""
FOUND = """
    SELECT node, instance, gpu, tenant, service || job, sm_percent, memory_gib, dedicated,
           to_char(first_at AT TIME ZONE 'UTC', 'DD'), to_char(withdrawn_at AT TIME ZONE 'UTC', 'DD')
    FROM assigned ORDER BY 1, 2
"""


def test_usage_and_assignments_of_before_are_known(empty_database_url: str) -> None:
    schema.migrate(empty_database_url, "0006")
    with psycopg.connect(libpq_url(empty_database_url)) as connection:
        connection.execute(USAGE)
        connection.execute(ASSIGNMENT)
    schema.migrate(empty_database_url, "0007")
    with psycopg.connect(libpq_url(empty_database_url)) as connection:
        assert connection.execute(FOUND).fetchall() == [
            ("node-1", "i-a", 0, "shop", "search", 50, 4, False, "01", None),
            ("node-1", "i-b", 0, "lab", "night", 12.5, 3.3, False, "04", None),
            ("node-2", "i-a", 1, "lab", "night", 10, 1, True, "03", "05"),
        ]


def test_what_no_jsonb_holds_is_no_hindrance(empty_database_url: str) -> None:
    schema.migrate(empty_database_url, "0007")
    body = (
        r"""{"instances": [{"id": "i-a", "gpu": 0, "service": "a", "args": {"x": "\u0000\u0000", "y": "\\u0000"}}]}"""
    )
    with psycopg.connect(libpq_url(empty_database_url)) as connection:
        connection.execute("INSERT INTO assignment VALUES ('node-1', 1, 1, 1, %s, '2026-01-04Z')", [body])
        assert connection.execute("SELECT instance, service FROM assigned").fetchall() == [("i-a", "a")]

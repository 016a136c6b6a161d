"""A trigger on assignments records what was ever assigned to a node."""

from __future__ import annotations

import psycopg
import pytest

from app.store.database import schema
from app.store.database.urls import libpq_url

pytestmark = pytest.mark.slow

ASSIGNMENTS = [
    """{"instances": [
        {"id": "i-a", "gpu": 0, "tenant": "shop", "service": "search", "smPercent": 50, "memoryGib": 2},
        {"id": "i-c", "gpu": 1, "tenant": "lab", "job": "night", "smPercent": 10, "memoryGib": 1, "dedicated": true}
    ]}""",
    """{"instances": [
        {"id": "i-a", "gpu": 0, "tenant": "shop", "service": "search", "smPercent": 20, "memoryGib": 4},
        {"id": "i-b", "gpu": 0, "tenant": "lab", "job": "night", "smPercent": 12.5, "memoryGib": 3.3}
    ]}""",
]
WRITTEN = """
    INSERT INTO assignment VALUES ('node-1', 1, 1, %(day)s, %(body)s, make_date(2026, 1, %(day)s))
    ON CONFLICT (node) DO UPDATE SET body = excluded.body, written_at = excluded.written_at
"""
FOUND = """
    SELECT node, instance, gpu, tenant, service || job, sm_percent, memory_gib, dedicated,
           to_char(first_at AT TIME ZONE 'UTC', 'DD'), to_char(withdrawn_at AT TIME ZONE 'UTC', 'DD')
    FROM assigned ORDER BY 1, 2
"""


def test_the_largest_share_ever_assigned_is_known_with_its_first_and_last_day(empty_database_url: str) -> None:
    schema.migrate(empty_database_url)
    with psycopg.connect(libpq_url(empty_database_url)) as connection:
        for day, body in enumerate(ASSIGNMENTS, 1):
            connection.execute(WRITTEN, {"day": day, "body": body})
        assert connection.execute(FOUND).fetchall() == [
            ("node-1", "i-a", 0, "shop", "search", 50, 4, False, "01", None),
            ("node-1", "i-b", 0, "lab", "night", 12.5, 3.3, False, "02", None),
            ("node-1", "i-c", 1, "lab", "night", 10, 1, True, "01", "02"),
        ]


def test_what_no_jsonb_holds_is_no_hindrance(empty_database_url: str) -> None:
    schema.migrate(empty_database_url)
    body = (
        r"""{"instances": [{"id": "i-a", "gpu": 0, "service": "a", "args": {"x": "\u0000\u0000", "y": "\\u0000"}}]}"""
    )
    with psycopg.connect(libpq_url(empty_database_url)) as connection:
        connection.execute("INSERT INTO assignment VALUES ('node-1', 1, 1, 1, %s, '2026-01-04Z')", [body])
        assert connection.execute("SELECT instance, service FROM assigned").fetchall() == [("i-a", "a")]

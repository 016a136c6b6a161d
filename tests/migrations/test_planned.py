"""The condition that was called Served is called Planned, forward and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from app.store.database import schema
from app.store.database.urls import libpq_url

pytestmark = pytest.mark.slow

INSERT = """
    INSERT INTO object
    VALUES (gen_random_uuid(), 'Service', 'shop', 'search', '{}', '{}', %s, 1, 1, NULL, '{}', now(), now())
"""
BEFORE = [
    {"type": "SloAttainable", "status": "True", "reason": "Attainable"},
    {"type": "Served", "status": "True", "reason": "Served"},
    {"type": "Degraded", "status": "False", "reason": "Served"},
]


def test_conditions_keep_their_order_and_all_else(empty_database_url: str) -> None:
    schema.migrate(empty_database_url, "0018")
    _declare(empty_database_url, {"conditions": BEFORE})
    schema.migrate(empty_database_url, "0019")
    assert [
        (known["type"], known["status"], known["reason"]) for known in _status(empty_database_url)["conditions"]
    ] == [
        ("SloAttainable", "True", "Attainable"),
        ("Planned", "True", "AllPlanned"),
        ("Degraded", "False", "AllPlanned"),
    ]
    schema.migrate(empty_database_url, "0018")
    assert _status(empty_database_url) == {"conditions": BEFORE}


def test_an_object_without_conditions_stays_as_it_is(empty_database_url: str) -> None:
    schema.migrate(empty_database_url, "0018")
    _declare(empty_database_url, {})
    schema.migrate(empty_database_url, "0019")
    assert _status(empty_database_url) == {}


def _declare(url: str, status: Mapping[str, Any]) -> None:
    with psycopg.connect(libpq_url(url)) as connection:
        connection.execute(INSERT, [Jsonb(status)])


def _status(url: str) -> Any:
    with psycopg.connect(libpq_url(url)) as connection:
        ((status,),) = connection.execute("SELECT status FROM object").fetchall()
        return status

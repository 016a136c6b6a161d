"""A fleet's day adds up, and what is written in bulk for measuring is what the ledger would have written."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from app.store.database.urls import libpq_url
from tests.proofs.accounts import measured
from tests.support.month import Fleet, account_for, load, load_accounted
from tests.support.postgres import DatabaseServer
from tests.support.soak import scaled

pytestmark = pytest.mark.slow

LINES = """
    SELECT slice, node, gpu, instance, tenant, service, model, kind, gpu_type, nano, gpu_microseconds FROM allocation
    ORDER BY 1, 2, 3, 4
"""


def test_a_days_money_is_gpu_hours_times_price(database_url: str) -> None:
    said, adds_up = measured(database_url, Fleet(days=1, gpus=scaled(1000, 10), instances=scaled(3000, 30)))
    assert adds_up, said


def test_what_is_written_in_bulk_is_what_the_ledger_writes(postgres: DatabaseServer) -> None:
    fleet = Fleet(days=1, gpus=10, instances=27)
    by_sql, by_ledger = postgres.create(), postgres.create()
    load_accounted(by_sql, fleet)
    load(by_ledger, replace(fleet, shapes_a_day=0))
    account_for(by_ledger, fleet.ends + timedelta(minutes=4))
    found = []
    for url in (by_sql, by_ledger):
        with psycopg.connect(libpq_url(url)) as connection:
            found.append(connection.execute(LINES).fetchall())
            sums = "SELECT sum(nano), sum(gpu_microseconds) FROM {}"
            tables = [
                connection.execute(sums.format(name)).fetchone() for name in ("allocation", "cost_hour", "cost_day")
            ]
            assert len(set(tables)) == 1
        postgres.drop(url)
    in_bulk, real = found
    assert [row[:9] for row in in_bulk] == [row[:9] for row in real]
    assert all(abs(one[9] - other[9]) <= 3 for one, other in zip(in_bulk, real, strict=True))
    assert sum(row[9] for row in in_bulk) == sum(row[9] for row in real)

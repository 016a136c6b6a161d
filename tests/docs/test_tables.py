"""The page of tables lists every table of the schema with the end of its growth, and the sum fits the disk advised."""

from __future__ import annotations

import psycopg
import pytest

from scripts.house.tree import ROOT
from tests.proofs.growth import GROWTH, GrowingFleet, fill, sizes, tables
from tests.support.soak import scaled

PAGE = (ROOT / "docs" / "tables.md").read_text()
DISK_MB = 100_000  # of the page on sizing, for 1,000 GPUs


def test_every_table_of_the_schema_has_a_stated_end(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        there = set(tables(connection))
    assert there - {growth.name for growth in GROWTH} == set(), "say in GROWTH how far it grows, and on the page"


def test_the_page_states_the_end_of_each_table(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        there = set(tables(connection))
    missing = [g.name for g in GROWTH if g.name in there and f"| `{g.name}` | {g.bound} |" not in PAGE]
    assert missing == []


@pytest.mark.slow
def test_a_month_of_a_thousand_gpus_fits_the_disk_that_is_advised(database_url: str) -> None:
    fill(database_url, float(scaled(1800, 90)))
    found = {size.growth.name: size for size in sizes(database_url, GrowingFleet())}
    assert sum(size.megabytes for size in found.values()) < DISK_MB
    assert found["instance_minute"].measured and found["allocation"].measured
    year = {size.growth.name: size for size in sizes(database_url, GrowingFleet(days=3000))}
    later = {size.growth.name: size for size in sizes(database_url, GrowingFleet(days=6000))}
    assert [name for name in year if name != "cost_day" and year[name].rows != later[name].rows] == []

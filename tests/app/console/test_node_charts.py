"""A node's page draws the holders of its GPUs and their reports; a tenant sees the times of its own copies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from playwright.sync_api import Browser

from app.store.database import clock, partitions
from app.store.database.database import Database
from app.store.database.urls import libpq_url
from tests.app.console.test_browser import PHONE, WIDE, opened
from tests.app.console.test_charts import charts
from tests.app.console.test_page import words
from tests.app.console.visits import session, visit
from tests.support.axe import violations
from tests.support.planned import Planned
from tests.support.server import RunningServer

TITLES = [
    "Who held each GPU", "Busy", "Memory in use", "Power", "Temperature", "SM clock", "Unhealthy or throttled",
]  # fmt: skip
FILL = """
    DELETE FROM gpu_minute;
    INSERT INTO fleet_minute (minute) VALUES ('2026-01-01T00:00Z') ON CONFLICT DO NOTHING;
    INSERT INTO gpu_minute
    SELECT date_trunc('minute', moment()) - n * interval '1 minute', 'node-0', gpu, 1,
           CASE WHEN n < 3 AND gpu = 1 THEN 'failed' ELSE 'ok' END, 50, 7, 123, 130, 0, 61 + 10 * gpu, 1410,
           CASE WHEN n BETWEEN 5 AND 8 THEN ARRAY['power_cap'] ELSE '{}' END,
           CASE WHEN n < 3 AND gpu = 1 THEN 'xid_79' ELSE '' END
    FROM generate_series(1, 30) AS n, generate_series(0, 1) AS gpu
    ON CONFLICT DO NOTHING;
    INSERT INTO assigned
    SELECT 'node-0', owner, 0, owner, CASE owner WHEN 'train' THEN '' ELSE 'old' END,
           CASE owner WHEN 'train' THEN 'train' ELSE '' END, 40, 4, false, moment() - interval '50 minutes', moment()
    FROM unnest(ARRAY['shop', 'lab', 'train']) AS owner;
    INSERT INTO usage_interval (node, id, instance, gpu, gpu_uuid, tenant, service, job, sm_percent, memory_gib,
        dedicated, started_at, ended_at, evidence)
    SELECT 'node-0', 'made-' || instance, instance, 0, '', 'liar', '', '', 40, 4, false,
           moment() - interval '50 minutes', moment() - interval '20 minutes', 'measured'
    FROM unnest(ARRAY['shop', 'lab', 'train', 'never-assigned']) AS instance;
"""

LEAVES = """
    INSERT INTO assigned VALUES ('node-x', 'gone', 3, 'shop', 'a', '', 40, 4, false, moment() - interval '1 hour');
    INSERT INTO usage_interval (node, id, instance, gpu, gpu_uuid, tenant, service, job, sm_percent, memory_gib,
        dedicated, started_at, evidence)
    VALUES ('node-x', 'leaves', 'gone', 3, '', 'liar', '', '', 40, 4, false, moment() - interval '1 hour', 'measured')
"""


@pytest.fixture(scope="module")
def server(planned: Planned) -> Iterator[RunningServer]:
    database = Database(planned.server.database_url, pool_size=1, direct=True)
    database.write(lambda connection: partitions.ensure(connection, [clock.moment(connection)]))
    database.close()
    with psycopg.connect(libpq_url(planned.server.database_url), autocommit=True) as connection:
        connection.execute(FILL.encode())
    assert planned.server.request("POST", "/api/v1/nodes/node-0/cordon", {"gpu": 1}).status == 200
    yield planned.server
    planned.server.request("POST", "/api/v1/nodes/node-0/uncordon", {"gpu": 1})
    with psycopg.connect(libpq_url(planned.server.database_url), autocommit=True) as connection:
        connection.execute(b"DELETE FROM fleet_minute WHERE minute = '2026-01-01T00:00Z'")


@pytest.fixture(scope="module")
def viewer(server: RunningServer) -> str:
    return session(server, server.token("viewer"))


def test_a_node_shows_what_its_gpus_reported_and_why_one_ails(server: RunningServer, viewer: str) -> None:
    found = charts(visit(server, viewer, "/nodes/node-0?range=1h").text)
    assert list(found) == TITLES
    for title, text in (
        ("Busy", "GPU 0 50.0 %"), ("Memory in use", "GPU 1 7"), ("Power", "GPU 0 123"),
        ("Temperature", "GPU 0 61 GPU 1 71"), ("SM clock", "GPU 0 1 410"),
        ("Unhealthy or throttled", "power cap 8"), ("Unhealthy or throttled", "xid 79 2"),
    ):  # fmt: skip
        assert text in words(found[title]), title
    table = charts(visit(server, viewer, "/nodes/node-0?range=1h&table=temperature").text)["Temperature"]
    assert "<table>" in table


def test_lanes_show_who_held_a_gpu_by_what_it_was_assigned(server: RunningServer, viewer: str) -> None:
    page = visit(server, viewer, "/nodes/node-0?range=1h").text
    lanes = charts(page)["Who held each GPU"]
    text = words(lanes.partition("<table>")[2] or "")
    for name in ("0: shop/old", "0: lab/old", "0: train/train job"):
        assert name in text
        row = text[text.index(name) :]
        assert "19.7 %" in row[:120], "40 % of the SMs for 30 of the 61 minutes drawn"
    assert "liar" not in lanes and "never-assigned" not in lanes
    assert "kept free: cordoned or drained" in words(lanes)
    assert lanes.count('class="line closed"') == 1


def test_a_tenant_sees_when_its_own_copies_ran_and_nothing_else(server: RunningServer) -> None:
    own = session(server, server.token("viewer", tenant="shop"))
    plan = server.request("GET", "/api/v1/plans/current").json
    node = next(line["node"] for line in plan["instances"] if line["service"].startswith("shop/"))
    page = visit(server, own, f"/nodes/{node}?range=1h").text
    assert list(charts(page)) == ["Who held each GPU"]
    text = words(page)
    assert "lab" not in text and "train" not in text and "cordoned" not in text
    assert ("shop/old" in text) == (node == "node-0")


def test_a_service_names_the_copies_that_leave(server: RunningServer, viewer: str) -> None:
    assert 'id="leaving"' not in visit(server, viewer, "/services/shop/a").text
    with psycopg.connect(libpq_url(server.database_url), autocommit=True) as connection:
        connection.execute(LEAVES.encode())
        page = visit(server, viewer, "/services/shop/a").text
        connection.execute(b"DELETE FROM assigned WHERE node = 'node-x'")
    leaving = words(page[page.index('id="leaving"') :].partition("</p>")[0])
    assert "which leave: node-x/3 (there since" in leaving
    assert "node-0" not in leaving, "where it is planned"


@pytest.mark.slow
@pytest.mark.parametrize("look", [{"viewport": WIDE}, PHONE], ids=["1440", "390"])
def test_a_nodes_charts_are_read_by_eye_and_by_ear(
    browser: Browser, server: RunningServer, viewer: str, look: dict[str, Any]
) -> None:
    with opened(browser, server, viewer.partition("=")[2], **look) as page:
        page.goto("/nodes/node-0?range=1h")
        assert page.get_by_role("img", name="Who held each GPU").is_visible()
        page.get_by_text("As a table of Who held each GPU").click()
        assert page.get_by_role("region", name="Who held each GPU as a table").is_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= look["viewport"]["width"]
        assert violations(page) == []

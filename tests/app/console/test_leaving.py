"""Copies that leave are on the map: hatched, with a word, in the tooltip and by ear; a tenant sees its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from playwright.sync_api import Browser

from app.console.fleet import draw_fleet
from app.console.node_page import describe_node
from app.store.database.urls import libpq_url
from app.store.fleet.fleet_map import ReportedCopy
from tests.app.console.test_browser import PHONE, WIDE, opened
from tests.app.console.test_drawing import NOW, instance, node, seen
from tests.app.console.visits import session, visit
from tests.support.axe import violations
from tests.support.planned import Planned
from tests.support.server import RunningServer

DETAIL = {
    "copies": [
        {"id": "1", "instance": "gone-a", "gpu": 1, "stage": "draining", "smPercent": 30},
        {"id": "2", "instance": "gone-x", "gpu": 1, "stage": "ready", "smPercent": 20},
        {"id": "3", "instance": "ended", "gpu": 0, "stage": "gone", "smPercent": 20},
        {"id": "4", "instance": "asleep", "gpu": 0, "stage": "swapped", "smPercent": 20},
    ],
    "owners": {
        "gone-a": {"tenant": "shop", "service": "left"},
        "gone-x": {"tenant": "lab", "job": "tune"},
        "ended": {"tenant": "shop", "service": "ended"},
        "asleep": {"tenant": "lab", "job": "asleep"},
    },
}


def test_a_copy_is_hatched_where_the_plan_has_none_of_its_service() -> None:
    whole = seen([], [node("n-1", gpus=2)], instances=[instance("shop/a", "n-1", 0, 95)])
    copies = [
        ReportedCopy("n-1", 0, "shop/a", 95.0, "ready"), ReportedCopy("n-1", 0, "shop/b", 50.0, "ready"),
        ReportedCopy("n-1", 1, "shop/a", 40.0, "draining"),
    ]  # fmt: skip
    drawn = draw_fleet(replace(whole, copies=copies), NOW).groups[0].drawn[0]
    hatch = dict(drawn.paths)["l"]
    assert hatch.count("M") == 13, "six lines of the least height on the full GPU, and seven of the other"
    assert drawn.tooltip == "0: shop/a 95; leaving: shop/b\n1: empty; leaving: shop/a"
    assert drawn.label.endswith("leaving: shop/b, shop/a")
    assert drawn.is_left
    still = draw_fleet(replace(whole, copies=copies[:1]), NOW).groups[0].drawn[0]
    assert not still.is_left and "l" not in dict(still.paths)


def test_a_tenant_sees_a_gpu_that_only_its_leaving_copy_is_on() -> None:
    whole = seen([], [node("n-1", gpus=0)], instances=[instance("shop/a", "n-1", 3)])
    own = replace(whole, tenant="shop", copies=[ReportedCopy("n-1", 1, "shop/a", 40.0, "draining")])
    assert draw_fleet(own, NOW).groups[0].drawn[0].tooltip == "1: empty; leaving: shop/a\n3: shop/a 25"


def test_nothing_leaves_while_no_plan_is_in_force_or_its_node_is_silent() -> None:
    whole = replace(seen([], [node("n-1", gpus=2)]), copies=[ReportedCopy("n-1", 1, "shop/a", 40.0, "ready")])
    silent = replace(whole, nodes=[node("n-1", gpus=2, silent_seconds=300.0)])
    for data, expected in ((whole, True), (replace(whole, is_in_force=False), False), (silent, False)):
        assert draw_fleet(data, NOW).groups[0].drawn[0].is_left is expected
        assert bool(describe_node(data, {}).gpus[1].leaving) is expected


@pytest.fixture
def server(planned: Planned) -> Iterator[RunningServer]:
    with psycopg.connect(libpq_url(planned.server.database_url), autocommit=True) as connection:
        ((before,),) = connection.execute("SELECT detail FROM node_detail WHERE node = 'node-0'").fetchall()
        set_detail = "UPDATE node_detail SET detail = CAST(%s AS jsonb) WHERE node = 'node-0'"
        connection.execute(set_detail, [json.dumps(before | DETAIL)])
        yield planned.server
        connection.execute(set_detail, [json.dumps(before)])


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"viewport": WIDE}, PHONE], ids=["wide", "phone"])
def test_what_leaves_is_seen_and_heard_on_the_map(
    browser: Browser, server: RunningServer, options: dict[str, Any]
) -> None:
    cookie = session(server, server.token("viewer")).partition("=")[2]
    with opened(browser, server, cookie, **options) as page:
        page.goto("/")
        left = page.locator(".nodes li", has_text="leaving")
        assert left.count() == 1
        page.get_by_role("link", name="node-0: 2 GPUs").and_(page.locator("[aria-label*='leaving: ']")).wait_for()
        assert "1: " in (left.locator("title").text_content() or "")
        told = left.locator("title").text_content() or ""
        assert "leaving: lab/tune, shop/left" in told
        assert "asleep" not in told and "ended" not in told, "they hold nothing any more"
        box = left.locator("path.l").bounding_box()
        assert box is not None and box["height"] > 10, "a small fleet is drawn large"
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert violations(page) == []


@pytest.mark.slow
def test_a_tenant_does_not_learn_what_leaves_of_another(server: RunningServer) -> None:
    cookie = session(server, server.token("viewer", tenant="shop"))
    for path in ("/", "/nodes/node-0"):
        own = visit(server, cookie, path).text
        assert "lab/tune" not in own and "shop/left" in own


@pytest.mark.slow
def test_a_tenant_sees_the_node_that_its_last_copy_leaves(server: RunningServer) -> None:
    cookie = session(server, server.token("viewer", tenant="moved"))
    assert visit(server, cookie, "/nodes/node-0").status == 404
    with psycopg.connect(libpq_url(server.database_url), autocommit=True) as connection:
        connection.execute(
            "UPDATE node_detail SET detail = jsonb_set(detail, '{owners,gone-a,tenant}', '\"moved\"') "
            "WHERE node = 'node-0'"
        )
    assert "moved/left (draining)" in visit(server, cookie, "/nodes/node-0").text
    assert "leaving: moved/left" in visit(server, cookie, "/").text

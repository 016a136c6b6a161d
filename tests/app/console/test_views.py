"""The link to a view shows the same in another browser: filters, order, range, comparison and time zone."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from app.console.links import view_link
from tests.app.console.test_browser import LIVE_PAGES, PHONE, WIDE, opened
from tests.app.console.test_page import words
from tests.app.console.visits import session, visit
from tests.support.axe import violations
from tests.support.planned import Planned
from tests.support.server import RunningServer

pytestmark = pytest.mark.slow

VIEWS = (
    *LIVE_PAGES, "/?service=shop/a&range=7d&table=cost", "/services?find=shop&state=unserved&sort=cost&page=1",
    "/services/shop/a?range=30d&table=rate", "/nodes/node-0?range=1h&table=busy", "/plans?before=9",
    "/money?table=works", "/plans/1?against=1", "/events?severity=alarm&kind=Service&name=lab/x&find=rate&before=99999",
    "/jobs?phase=queued&find=a", "/audit?verb=create&kind=Service&name=shop/a&principal=x",
    "/what-if?service=shop/a&rate=x2&slo=80ms&node=node-1",
)  # fmt: skip
LINK = re.compile(r'<a id="view" href="([^"]+)"')
TALLEST = """() => Math.max(0, ...[...document.querySelectorAll("main svg, main .tall")]
    .map((part) => part.getBoundingClientRect().height))"""
MULTIPLY = """() => {
    const list = document.querySelector(".nodes");
    for (let more = 0; more < 400; more++) list.append(list.firstElementChild.cloneNode(true));
}"""


@pytest.fixture(scope="module")
def server(planned: Planned) -> RunningServer:
    return planned.server


@pytest.fixture(scope="module")
def people(server: RunningServer) -> tuple[str, str]:
    """Cookies of two sessions: signing in is an entry of the audit, which would tell two visits apart."""
    return session(server, server.admin_token), session(server, server.admin_token)


def shown(html: str) -> str:
    """What a page says, without the proofs in its forms, which are new each time."""
    return words(html[html.index("<main") : html.index("</main>")])


@pytest.mark.parametrize("path", VIEWS)
def test_a_view_is_the_same_for_another_who_opens_its_link(
    server: RunningServer, people: tuple[str, str], path: str
) -> None:
    mine = visit(server, f"{people[0]}; gpuwright-zone=Asia/Kathmandu", path)
    (link,) = LINK.findall(mine.text)
    theirs = visit(server, people[1], unescape(link))
    assert theirs.status == mine.status == 200
    assert shown(theirs.text) == shown(mine.text)
    assert "<option selected>Asia/Kathmandu</option>" in theirs.text
    assert LINK.findall(theirs.text) == [link], "a view of a view is itself"


def test_what_a_page_chose_by_itself_is_in_the_link_and_what_was_just_done_is_not(server: RunningServer) -> None:
    page = visit(server, session(server, server.admin_token), "/nodes/node-0?done=drain").text
    (link,) = LINK.findall(page)
    assert re.fullmatch(r"/nodes/node-0\?range=(1h|24h)&amp;zone=UTC", link)
    assert view_link("/a", {"done": "x", "find": "é &", "state": ""}, "UTC") == "/a?find=%C3%A9+%26&zone=UTC"


def test_a_link_to_a_view_leads_to_no_other_server() -> None:
    for path in ("//evil.example/x", "/\\evil.example", "/./sign-in"):
        assert view_link(path, {}, "UTC") == "/"


def test_an_unknown_time_zone_in_an_address_is_none(server: RunningServer) -> None:
    page = visit(server, session(server, server.admin_token), "/events?zone=../../etc/passwd")
    assert (page.status, "<option selected>UTC</option>" in page.text) == (200, True)


@pytest.mark.parametrize("options", [{"viewport": WIDE}, PHONE], ids=["wide", "phone"])
def test_a_fresh_browser_comes_through_the_sign_in_to_the_same_view(
    browser: Browser, server: RunningServer, options: dict[str, Any]
) -> None:
    with opened(browser, server, session(server, server.admin_token).partition("=")[2], **options) as page:
        page.goto("/services")
        page.get_by_label("Times in").select_option("Asia/Tokyo")
        page.get_by_label("Tenant or name").fill("shop")
        page.get_by_label("Order").select_option("name")
        page.wait_for_url("**/services?find=shop&sort=name")
        expect(page.locator("#view")).to_have_attribute("href", "/services?find=shop&sort=name&zone=Asia/Tokyo")
        rows = page.locator("#found tbody th").all_inner_texts()
        link = page.locator("#view").get_attribute("href")
        assert violations(page) == []
    with opened(browser, server, **options) as fresh:
        fresh.goto(link or "")
        fresh.get_by_label("Token").fill(server.admin_token)
        fresh.keyboard.press("Enter")
        fresh.wait_for_url(f"{server.url}{link}")
        expect(fresh.locator("#found tbody th")).to_have_text(rows)
        assert fresh.get_by_label("Times in").input_value() == "Asia/Tokyo"
        assert fresh.get_by_label("Order").input_value() == "name"
        fresh.get_by_label("Times in").select_option("UTC")  # the choice counts from here on
        expect(fresh.locator("#view")).to_have_attribute("href", "/services?find=shop&sort=name&zone=UTC")
        assert violations(fresh) == []


def test_no_picture_on_a_phone_is_taller_than_two_screens(browser: Browser, server: RunningServer) -> None:
    most = 2 * PHONE["viewport"]["height"]
    with opened(browser, server, session(server, server.admin_token).partition("=")[2], **PHONE) as page:
        for path in LIVE_PAGES:
            page.goto(path)
            assert page.evaluate(TALLEST) <= most, path
        page.goto("/")
        page.evaluate(MULTIPLY)
        assert page.evaluate("document.querySelector('.nodes').offsetHeight") > most
        assert page.evaluate(TALLEST) <= most
        assert violations(page) == []

"""Work on the pages in a real browser: filters, order, explanation, time zone, a lost server, a phone."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from app.console.links import SIGN_IN, sign_in_link
from tests.app.console.test_browser import LIVE_PAGES, PAGES, PHONE, STILL_PAGES, opened
from tests.app.console.visits import cookie_of, session, sign_in, visit
from tests.support.axe import violations
from tests.support.patience import patience
from tests.support.planned import Planned
from tests.support.server import RunningServer

pytestmark = pytest.mark.slow

OF_ADMINS = ("/audit", "/what-if")  # a viewer is refused there


@pytest.fixture(scope="module")
def server(planned: Planned) -> RunningServer:
    return planned.server


@pytest.fixture(scope="module")
def cookie(server: RunningServer) -> str:
    return session(server, server.token("viewer")).partition("=")[2]


def names(page: Page) -> list[str]:
    return page.locator("#found tbody th").all_inner_texts()


def test_a_filter_applies_while_it_is_typed_and_is_in_the_address(
    browser: Browser, server: RunningServer, cookie: str
) -> None:
    with opened(browser, server, cookie) as page:
        page.goto("/services")
        assert page.get_by_role("button", name="Show").count() == 0
        page.get_by_label("Tenant or name").press_sequentially("shop")
        expect(page.locator("#found tbody th")).to_have_count(3)
        page.get_by_label("Order").select_option("name")
        page.wait_for_url("**/services?find=shop&sort=name")
        expect(page.locator("#found tbody th").first).to_have_text("shop/a")
        page.reload()
        assert names(page) == ["shop/a", "shop/b", "shop/c"]
        assert page.get_by_label("Tenant or name").input_value() == "shop"


def test_by_keyboard_alone_a_table_is_sorted_a_service_opened_and_explained(
    browser: Browser, server: RunningServer, cookie: str
) -> None:
    with opened(browser, server, cookie) as page:
        page.goto("/")
        for _ in range(4):  # past the content link, the name and Fleet
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_url("**/services")
        page.get_by_role("link", name="Cost/h").focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**/services?sort=cost")
        expect(page.get_by_role("columnheader", name="Cost/h")).to_have_attribute("aria-sort", "descending")
        page.get_by_role("link", name="lab/x").focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**/services/lab/x")
        page.get_by_role("heading", name="Plans that changed it").wait_for()
        page.get_by_role("link", name="Explain").focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**/services/lab/x/explain")
        told = server.request("GET", "/api/v1/explain/services/lab/x").json["sentences"]
        assert page.locator("main .reasons").first.locator("li").all_inner_texts() == told
        assert violations(page) == []


def test_the_legend_names_the_colours_and_leaves_one_of_them(
    browser: Browser, server: RunningServer, cookie: str
) -> None:
    with opened(browser, server, cookie) as page:
        page.goto("/")
        page.get_by_role("list", name="Colours of services").get_by_role("link", name="shop/b").click()
        page.get_by_text("only shop/b is coloured").wait_for()
        box = page.locator(".nodes svg").first.bounding_box()
        assert box is not None
        assert box["height"] > 60, "four GPUs are drawn large"


def test_events_are_filtered_and_lead_to_what_they_are_about(
    browser: Browser, server: RunningServer, cookie: str
) -> None:
    with opened(browser, server, cookie) as page:
        page.goto("/events")
        page.get_by_label("Severity").select_option("alarm")
        page.wait_for_url("**/events?severity=alarm")
        expect(page.locator("#found li.info")).to_have_count(0)
        page.locator("#found").get_by_role("link", name="lab/x").first.click()
        page.wait_for_url("**/services/lab/x")
        page.goto("/events?find=nothing-is-called-so")
        page.get_by_text("No event matches.").wait_for()


def test_times_are_shown_in_the_zone_that_was_chosen(browser: Browser, server: RunningServer, cookie: str) -> None:
    with opened(browser, server, cookie, timezone_id="Europe/Lisbon") as page:
        page.goto("/events")
        shown = page.locator("#found time").first
        moment, before = shown.get_attribute("datetime"), shown.inner_text()
        page.get_by_label("Times in").select_option("Europe/Lisbon")  # offered because the browser is there
        expect(page.locator("#found time").first).not_to_have_text(before)
        assert page.url.endswith("/events")
        assert page.locator("#found time").first.get_attribute("datetime") == moment
        page.goto("/services/lab/x")
        assert page.get_by_label("Times in").input_value() == "Europe/Lisbon"


def test_a_lost_server_is_reported_and_the_page_recovers(browser: Browser, server: RunningServer, cookie: str) -> None:
    context = browser.new_context(base_url=server.url)
    context.set_default_timeout(1000 * patience())
    context.add_cookies([{"name": "gpuwright", "value": cookie, "url": server.url, "sameSite": "Strict"}])
    context.clock.install()
    tabs = [(path, context.new_page()) for path in LIVE_PAGES if path not in OF_ADMINS]
    for path, tab in tabs:
        tab.goto(path)
        expect(tab.locator("#live")).to_have_text("Live,")
    server.kill()
    context.clock.run_for(16_000)
    for _, tab in tabs:
        expect(tab.locator("#stale")).to_have_text(re.compile(r"^No connection since \d\d:\d\d:\d\d\. "))
        expect(tab.locator("#live")).to_have_text("As of")
        assert tab.evaluate("getComputedStyle(document.querySelector('main')).filter") == "grayscale(1)"
    server.restart()
    context.clock.run_for(16_000)
    for _, tab in tabs:
        expect(tab.locator("#live")).to_have_text("Live,")
        expect(tab.locator("#stale")).to_be_empty()
        assert tab.evaluate("getComputedStyle(document.querySelector('main')).filter") == "none"
    context.close()


def test_a_deep_link_leads_through_the_sign_in_to_its_page(server: RunningServer) -> None:
    for path in PAGES:
        door = visit(server, "", path).headers["location"]
        assert door == sign_in_link(path)
        entered = sign_in(server, server.admin_token, query=door.removeprefix(SIGN_IN))
        assert entered.headers["location"] == path
        shown = visit(server, cookie_of(entered), path)
        assert shown.status == 200
        assert "Sign out" in shown.text


def test_a_browser_follows_deep_links_through_the_sign_in(browser: Browser, server: RunningServer) -> None:
    with opened(browser, server) as page:
        for path in (LIVE_PAGES[0], STILL_PAGES[0]):
            page.goto(path)
            page.wait_for_url(f"{server.url}{sign_in_link(path)}")
            page.get_by_label("Token").fill(server.admin_token)
            page.keyboard.press("Enter")
            page.wait_for_url(f"{server.url}{path}")
            page.get_by_role("button", name="Sign out").wait_for()
            page.context.clear_cookies()


def test_a_phone_loses_no_column(browser: Browser, server: RunningServer, cookie: str) -> None:
    with opened(browser, server, cookie, **PHONE) as page:
        page.goto("/services")
        row = page.locator("#found tbody tr").first
        labels = row.locator("td").evaluate_all("cells => cells.map(cell => cell.dataset.label)")
        assert {"State", "SLO", "Instances", "Cost/h"} <= set(labels)
        for cell in row.locator("td").all():
            box = cell.bounding_box()
            assert box is not None
            assert box["x"] >= 0 and box["x"] + box["width"] <= 390
        shown = row.locator("td").evaluate_all("cells => cells.map(cell => getComputedStyle(cell, '::before').content)")
        assert shown == [f'"{label}"' for label in labels]

"""The page in a real browser: read without scripts, by keyboard and by ear, in both lights and on a phone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from app.console.links import sign_in_link
from app.store.database.urls import libpq_url
from tests.app.console.visits import link, session
from tests.support.axe import violations, violations_in_either_light
from tests.support.patience import patience
from tests.support.planned import Planned
from tests.support.server import RunningServer

pytestmark = pytest.mark.slow

STILL_PAGES = ("/services/shop/a/explain",)  # an answer, which does not refresh
LIVE_PAGES = (
    "/?service=shop/a", "/nodes/node-0", "/services", "/services/shop/a", "/plans", "/plans/1", "/money", "/events",
    "/audit", "/jobs", "/what-if", "/search?find=shop",
)  # fmt: skip
PAGES = LIVE_PAGES + STILL_PAGES
WIDE = {"width": 1440, "height": 900}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "is_mobile": True}


@pytest.fixture(scope="module")
def server(planned: Planned) -> RunningServer:
    return planned.server


@pytest.fixture(scope="module")
def cookie(server: RunningServer) -> str:
    return session(server, server.admin_token).partition("=")[2]


@contextmanager
def opened(
    browser: Browser, server: RunningServer, cookie: str = "", refused: Sequence[int] = (), **options: Any
) -> Iterator[Page]:
    """A page of a new visitor; anything that the browser complains of fails the test, but for these refusals."""
    context: BrowserContext = browser.new_context(base_url=server.url, **options)
    context.set_default_timeout(1000 * patience())
    if cookie:
        context.add_cookies([{"name": "gpuwright", "value": cookie, "url": server.url, "sameSite": "Strict"}])
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith(server.url) else complaints.append(request.url))
    yield page
    context.close()
    expected = tuple(f"Failed to load resource: the server responded with a status of {status}" for status in refused)
    assert [text for text in complaints if not text.startswith(expected)] == []


def test_nobody_is_shut_out_in_either_light_by_eye_by_ear_or_by_hand(
    browser: Browser, server: RunningServer, cookie: str
) -> None:
    with opened(browser, server, cookie, viewport=WIDE) as page:
        for path in (*PAGES, "/sign-in"):
            page.goto(path)
            assert page.evaluate("document.documentElement.scrollWidth") <= WIDE["width"], path
            assert violations_in_either_light(page) == [], path
            assert page.evaluate("document.documentElement.scrollWidth") <= WIDE["width"], path


def test_a_phone_shows_it_without_scrolling_sideways(browser: Browser, server: RunningServer, cookie: str) -> None:
    with opened(browser, server, cookie, **PHONE) as page:
        for path in PAGES:
            page.goto(path)
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
            assert violations(page) == [], path


def test_without_scripts_everything_is_there_and_works(browser: Browser, server: RunningServer) -> None:
    with opened(browser, server, java_script_enabled=False) as page:
        page.goto("/")
        page.wait_for_url(f"{server.url}/sign-in")
        page.get_by_label("Token").fill(server.admin_token)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{server.url}/")
        page.get_by_role("link", name="Services").click()
        page.get_by_role("link", name="shop/a").first.click()
        page.get_by_role("heading", name="shop/a").wait_for()
        page.get_by_role("link", name="Services").first.click()
        page.get_by_label("Tenant or name").fill("lab")
        page.get_by_role("button", name="Show").click()
        page.get_by_role("row", name="lab/x").wait_for()
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url(f"{server.url}/sign-in")


def test_a_link_opens_the_page_at_the_press_of_a_button(browser: Browser, server: RunningServer) -> None:
    with opened(browser, server) as page:
        page.goto(f"/sign-in?link={link(server, server.admin_token)}")
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{server.url}/")
        page.get_by_role("heading", name="GPUs", exact=True).wait_for()


# Remembers what had the focus, and returns how much can have it; folded parts cannot.
WATCH_FOCUS = """() => {
    const all = [...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")];
    window.missed = new Set(all.filter((part) => part.checkVisibility() && part.type !== "hidden"));
    document.addEventListener("focusin", (event) => window.missed.delete(event.target));
    return window.missed.size;
}"""
MISSED = "[...window.missed].map((part) => part.outerHTML)"


def test_by_keyboard_everything_on_a_page_is_reached_and_the_first_stop_leads_to_the_content(
    browser: Browser, server: RunningServer, cookie: str
) -> None:
    with opened(browser, server, cookie) as page:
        for path in PAGES:
            page.goto(path)
            for _ in range(page.evaluate(WATCH_FOCUS)):
                page.keyboard.press("Tab")
            assert page.evaluate(MISSED) == [], path
        page.goto("/")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to content"
        page.keyboard.press("Enter")
        page.wait_for_url("**/#content")


def test_a_node_is_read_aloud_in_words(browser: Browser, server: RunningServer, cookie: str) -> None:
    with opened(browser, server, cookie) as page:
        page.goto("/")
        page.get_by_role("link", name="node-0: 2 GPUs, ").wait_for()


def test_it_stays_live_while_it_is_watched_and_leaves_who_is_at_work_alone(
    browser: Browser, server: RunningServer, cookie: str
) -> None:
    with (
        opened(browser, server, cookie) as page,
        psycopg.connect(libpq_url(server.database_url), autocommit=True) as connection,
    ):
        page.clock.install()
        page.goto("/")
        connection.execute(
            "INSERT INTO event (at, last_at, reason, kind, name, message, fingerprint) "
            "VALUES (moment(), moment(), 'operator', 'Plan', 'p1', 'somebody was here', 'live')"
        )
        page.get_by_label("Times in").focus()
        page.clock.run_for(16_000)
        assert page.get_by_text("somebody was here").count() == 0
        page.get_by_text("Paused while you type or select").wait_for()
        page.get_by_label("Times in").blur()
        page.clock.run_for(16_000)
        page.get_by_text("somebody was here").wait_for()
        connection.execute("DELETE FROM event WHERE fingerprint = 'live'")


def test_a_link_that_has_the_focus_keeps_it_while_the_page_goes_on(
    browser: Browser, server: RunningServer, cookie: str
) -> None:
    with (
        opened(browser, server, cookie) as page,
        psycopg.connect(libpq_url(server.database_url), autocommit=True) as connection,
    ):
        page.clock.install()
        page.goto("/")
        page.get_by_role("link", name="node-0").first.focus()
        connection.execute(
            "INSERT INTO event (at, last_at, reason, kind, name, message, fingerprint) "
            "VALUES (moment(), moment(), 'operator', 'Plan', 'p1', 'somebody was there', 'focus')"
        )
        page.clock.run_for(16_000)
        page.get_by_text("somebody was there").wait_for()
        assert page.evaluate("document.activeElement.getAttribute('href')") == "/nodes/node-0"
        connection.execute("DELETE FROM event WHERE fingerprint = 'focus'")


def test_a_page_whose_session_has_ended_goes_to_the_door(browser: Browser, server: RunningServer) -> None:
    token = server.token("admin")
    own = session(server, token).partition("=")[2]
    with opened(browser, server, own) as first:
        first.context.clock.install()
        tabs = {path: first.context.new_page() for path in LIVE_PAGES}
        for path, tab in tabs.items():
            tab.goto(path)
        server.request("DELETE", f"/api/v1/tokens/{token.split('_')[1]}")
        first.context.clock.run_for(16_000)
        for path, tab in tabs.items():
            tab.wait_for_url(f"{server.url}{sign_in_link(path)}")
            tab.get_by_label("Token").wait_for()
        # The first of them forgets the cookie.
        assert any(tab.get_by_text("Your session has ended").count() for tab in tabs.values())

"""What an operator asks at night is answered within four clicks from the first page, on a desk and on a phone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from app.control.domain.events import Reason
from tests.app.console.test_browser import PHONE, WIDE, opened
from tests.app.console.visits import session
from tests.support.axe import violations
from tests.support.planned import Planned, planned_fleet
from tests.support.postgres import DatabaseServer

pytestmark = pytest.mark.slow

LATE = "lab/x"  # which nothing serves whole
EDITED = "shop/a"
MOST_CLICKS = 4

Click = Callable[[Page], Locator]


@pytest.fixture(scope="module")
def fleet(postgres: DatabaseServer) -> Iterator[Planned]:
    """A fleet with a late service, and one whose rate was raised after the first plan."""
    with planned_fleet(postgres, seconds=95) as planned:
        path = f"/api/v1/services/{EDITED}"
        spec = planned.server.request("GET", path).json["spec"] | {"ratePerSecond": 260.0}
        assert planned.server.request("PUT", path, {"spec": spec}).status == 200
        planned.simulation.planner.cycle(Reason.CYCLE)
        yield planned


def link(name: str | re.Pattern[str]) -> Click:
    return lambda page: page.get_by_role("link", name=name, exact=isinstance(name, str)).first


def button(name: str) -> Click:
    return lambda page: page.get_by_role("button", name=name, exact=True)


def fold(name: str) -> Click:
    return lambda page: page.locator(f"summary:text-is('{name}')")


def navigation(name: str) -> Click:
    return lambda page: page.get_by_role("navigation", name="Pages").get_by_role("link", name=name, exact=True)


def listed(name: str) -> Click:
    return lambda page: page.locator("#found").get_by_role("link", name=name, exact=True)


def trouble(name: str) -> Click:
    return lambda page: page.locator("#trouble").get_by_role("link", name=name).first


# The question, the clicks from the first page, and what answers it there.
QUESTIONS: tuple[tuple[str, tuple[Click, ...], Click], ...] = (
    ("who is late", (), trouble(LATE)),
    (
        "since when",
        (trouble(LATE),),
        lambda page: page.get_by_text(re.compile(r"^Below its SLO since \d\d:\d\d:00")),
    ),
    ("why", (trouble(LATE), link("Explain")), lambda page: page.locator("main .reasons li").first),
    (
        "what changed",
        (navigation("Services"), listed(EDITED), link(re.compile(r"^plan \d+"))),
        lambda page: page.get_by_role("region", name="Changes by service").get_by_role("row", name=EDITED),
    ),
    (
        "what is it costing",
        (trouble(LATE),),
        lambda page: page.get_by_text("Cost per hour", exact=True),
    ),
    (
        "where are its logs",
        (trouble(LATE), link("Logs")),
        lambda page: page.get_by_text(re.compile("Its node did not answer|has printed")).first,
    ),
    (
        "what if I drain it",
        (link(re.compile(r"^node-0: ")), fold("Drain"), button("Show what must move"), link(re.compile("^What it"))),
        lambda page: page.get_by_label("Lose node"),
    ),
    (
        "undo that",
        (navigation("Audit"), link(re.compile("^Undo"))),
        lambda page: page.get_by_text("spec.ratePerSecond: 260.0 → 200.0"),
    ),
    (
        "undo that plan",
        (navigation("Plans"), link(re.compile(r"^Plan \d+$")), fold("Roll back to plan 1")),
        lambda page: page.get_by_role("button", name="Roll back to plan 1"),
    ),
    (
        "who did it",
        (navigation("Services"), listed(EDITED), link("Edits")),
        lambda page: page.get_by_role("cell", name="update"),
    ),
    (
        "will it fit tomorrow",
        (navigation("What-if"), button("Will tomorrow fit")),
        lambda page: page.get_by_role("heading", name="Will it fit tomorrow?"),
    ),
)


@pytest.mark.parametrize("look", [{"viewport": WIDE}, PHONE], ids=["1440", "390"])
def test_ten_questions_are_answered_within_four_clicks(browser: Browser, fleet: Planned, look: dict[str, Any]) -> None:
    server = fleet.server
    with opened(browser, server, session(server, server.admin_token).partition("=")[2], **look) as page:
        for question, clicks, answer in QUESTIONS:
            assert len(clicks) <= MOST_CLICKS, question
            page.goto("/")
            for click in clicks:
                click(page).click()
            expect(answer(page), question).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= look["viewport"]["width"], question
            assert violations(page) == [], question

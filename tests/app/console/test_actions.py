"""An operator works by mouse: approves, rejects, rolls back, drains, asks; each act is on record."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.app.console.test_browser import PHONE, opened, violations
from tests.app.console.visits import session
from tests.support.planned import Planned, planned_fleet
from tests.support.postgres import DatabaseServer
from tests.support.server import RunningServer


@pytest.fixture(scope="module")
def fleet(postgres: DatabaseServer) -> Iterator[Planned]:
    """A fleet whose plans wait for approval."""
    with planned_fleet(postgres, mode="approve", seconds=35) as planned:
        yield planned


def signed_in(server: RunningServer, token: str) -> str:
    return session(server, token).partition("=")[2]


def propose(fleet: Planned, rate: float) -> int:
    """Declares another rate; returns the plan that then waits for approval."""
    spec = fleet.server.request("GET", "/api/v1/services/shop/a").json["spec"] | {"ratePerSecond": rate}
    assert fleet.server.request("PUT", "/api/v1/services/shop/a", {"spec": spec}).status == 200
    fleet.simulation.planner.cycle()
    newest = fleet.server.request("GET", "/api/v1/plans?limit=1").json["items"][0]
    assert newest["state"] == "proposed"
    return int(newest["generation"])


def said(page: Page) -> str:
    return page.get_by_role("status").filter(has_text="You").inner_text()


def decide(page: Page, summary: str, button: str, reason: str = "") -> None:
    """Opens the fold, gives the reason and presses the button."""
    fold = page.locator(f"details.act:has(summary:text-is('{summary}'))")
    if fold.get_attribute("open") is None:
        fold.locator("summary").click()
    if reason:
        fold.get_by_label("Why (for the record)").fill(reason)
    fold.get_by_role("button", name=button, exact=True).click()


def test_an_approve_a_reject_a_rollback_and_a_drain_by_mouse_are_in_the_audit(browser: Browser, fleet: Planned) -> None:
    server = fleet.server
    first = int(server.request("GET", "/api/v1/plans?limit=1").json["items"][0]["generation"])
    with opened(browser, server, signed_in(server, server.admin_token)) as page:
        page.goto("/")
        page.get_by_role("link", name="Plans", exact=True).click()
        page.get_by_role("link", name=f"Plan {first}", exact=True).click()
        decide(page, "Approve", f"Approve plan {first}")
        assert said(page) == f"You approved plan {first}. Its rollout begins."
        second = propose(fleet, 260.0)
        page.goto(f"/plans/{second}")
        decide(page, "Reject", f"Reject plan {second}", "too dear")
        assert said(page).startswith(f"You rejected plan {second}")
        page.get_by_text("too dear").first.wait_for()
        third = propose(fleet, 420.0)
        page.goto(f"/plans/{third}")
        decide(page, "Approve", f"Approve plan {third}")
        decide(page, f"Roll back to plan {first}", f"Roll back to plan {first}")
        assert said(page).startswith(f"You asked to go back from plan {third}")
        fleet.simulation.planner.cycle()
        page.goto("/plans")
        page.get_by_role("button", name="Resume the fleet").click()
        assert said(page).startswith("You resumed the fleet")
        assert page.get_by_role("button", name="Resume the fleet").count() == 0
        page.goto("/nodes/node-1")
        decide(page, "Drain", "Drain node-1", "new fans")
        assert said(page).startswith("You asked to drain it")
        page.get_by_text("The node: being drained").wait_for()
        page.get_by_role("link", name="Audit", exact=True).click()
        table = page.get_by_role("region", name="Audit, the newest first")
        acts = [row.locator("td").nth(2).inner_text() for row in table.locator("tbody tr").all()]
        assert acts[:6] == ["drain", "resume", "rollback", "approve", "reject", "approve"] or acts[:5] == [
            "drain", "resume", "rollback", "approve", "update",
        ]  # fmt: skip
        console = table.get_by_text("from the console, session").count()
        assert console == 6, "each of the six acts names the console"
        page.get_by_label("Verb").fill("drain")
        page.get_by_role("button", name="Show").click()
        table.get_by_role("link", name="node-1").click()
        page.wait_for_url("**/nodes/node-1")


def test_a_question_is_answered_with_three_plans_in_money_and_unserved_load(browser: Browser, fleet: Planned) -> None:
    server = fleet.server
    with opened(browser, server, signed_in(server, server.token("operator"))) as page:
        page.goto("/what-if")
        page.get_by_label("Service", exact=True).fill("shop/a")
        page.get_by_label("Rate").fill("x2")
        page.get_by_label("Lose node").fill("node-1")
        page.get_by_role("button", name="Ask").click()
        table = page.get_by_role("region", name="The three plans")
        table.wait_for()
        assert [row.locator("th").inner_text() for row in table.locator("tbody tr").all()] == [
            "In force now", "Best for now", "Best for the change",
        ]  # fmt: skip
        assert page.get_by_label("Service", exact=True).input_value() == "shop/a"
        assert violations(page) == []


@pytest.mark.parametrize("options", [{"color_scheme": "light"}, {"color_scheme": "dark"}, PHONE], ids=str)
def test_the_pages_of_actions_shut_nobody_out(browser: Browser, fleet: Planned, options: dict[str, object]) -> None:
    server = fleet.server
    plan = server.request("GET", "/api/v1/plans?limit=1").json["items"][0]["generation"]
    with opened(browser, server, signed_in(server, server.admin_token), **options) as page:
        for path in ("/plans", f"/plans/{plan}", "/plans/1", "/nodes/node-1", "/audit", "/what-if"):
            page.goto(path)
            page.get_by_role("navigation", name="Pages", exact=True).wait_for()
            page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
            assert violations(page) == [], path
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


def test_a_plan_is_approved_by_keyboard_alone(browser: Browser, fleet: Planned) -> None:
    server = fleet.server
    plan = propose(fleet, 300.0)
    with opened(browser, server, signed_in(server, server.token("operator"))) as page:
        page.goto(f"/plans/{plan}")
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent") == f"Approve plan {plan}":
                break
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/plans/{plan}?done=approve")

"""An operator works by mouse: approves, rejects, rolls back, drains, asks; each act is on record."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from app.control.domain.events import Reason
from tests.app.console.test_browser import PHONE, WIDE, opened
from tests.app.console.visits import session, visit
from tests.support.axe import violations, violations_in_either_light
from tests.support.planned import Planned, planned_fleet
from tests.support.postgres import DatabaseServer
from tests.support.server import RunningServer

pytestmark = pytest.mark.slow


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
    fleet.simulation.planner.cycle(Reason.CYCLE)
    newest = fleet.server.request("GET", "/api/v1/plans?limit=1").json["items"][0]
    assert newest["state"] == "proposed"
    return int(newest["generation"])


def expect_said(page: Page, words: str) -> None:
    """Waits until the page reports this: a click returns before its page is there, and the last page may report too."""
    expect(page.get_by_role("status").filter(has_text="You")).to_have_text(re.compile(f"^{re.escape(words)}"))


def confirm(page: Page, label: str, button: str, reason: str = "") -> None:
    """Follows the link to the page that asks, gives the reason and presses the button."""
    page.get_by_role("link", name=label).click()
    agree(page, button, reason)


def agree(page: Page, button: str, reason: str = "") -> None:
    page.get_by_role("heading", name=f"{button}?").wait_for()
    if reason:
        page.get_by_label("Why (for the record)").fill(reason)
    page.get_by_role("button", name=button, exact=True).click()


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
        confirm(page, "Approve", f"Approve plan {first}")
        expect_said(page, f"You approved plan {first}. Its rollout begins.")
        second = propose(fleet, 260.0)
        page.goto(f"/plans/{second}")
        confirm(page, "Reject", f"Reject plan {second}", "too dear")
        expect_said(page, f"You rejected plan {second}")
        page.get_by_text("too dear").first.wait_for()
        third = propose(fleet, 420.0)
        page.goto(f"/plans/{third}")
        confirm(page, "Approve", f"Approve plan {third}")
        decide(page, f"Roll back to plan {first}", f"Roll back to plan {first}")
        expect_said(page, f"You asked to go back from plan {third}")
        fleet.simulation.planner.cycle(Reason.CYCLE)
        page.goto("/plans")
        page.get_by_role("button", name="Resume the fleet").click()
        expect_said(page, "You resumed the fleet")
        expect(page.get_by_role("button", name="Resume the fleet")).to_have_count(0)
        page.goto("/nodes/node-1")
        decide(page, "Drain", "Show what must move", "new fans")
        page.get_by_role("heading", name="What must move").wait_for()
        page.get_by_text(re.compile(r"^\d+ instances of \d services? must move\.$")).wait_for()
        expect(page.get_by_label("Why (for the record)")).to_have_value("new fans")
        assert server.request("GET", "/api/v1/cordons").json["items"] == [], "it has only asked"
        agree(page, "Drain node node-1")
        expect_said(page, "You asked to drain it")
        page.get_by_text("The node: being drained").wait_for()
        page.get_by_role("link", name="Audit", exact=True).click()
        page.wait_for_url("**/audit")
        table = page.get_by_role("region", name="Audit, the newest first")
        acts = [row.locator("td").nth(2).inner_text() for row in table.locator("tbody tr").all()]
        assert acts[:6] == ["drain", "resume", "rollback", "approve", "reject", "approve"] or acts[:5] == [
            "drain", "resume", "rollback", "approve", "update",
        ]  # fmt: skip
        console = table.get_by_text("from the console, session").count()
        assert console == 6, "each of the six acts names the console"
        page.get_by_label("Verb").fill("drain")
        page.get_by_role("button", name="Show").click()
        page.wait_for_url("**/audit?*verb=drain*")
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
        rows = page.get_by_role("region", name="The three plans").locator("tbody tr th")
        expect(rows).to_have_text(["In force now", "Best for now", "Best for the change"])
        assert page.get_by_label("Service", exact=True).input_value() == "shop/a"
        assert violations(page) == []


def test_another_risk_is_answered_and_six_are_priced_and_drawn(browser: Browser, fleet: Planned) -> None:
    server = fleet.server
    with opened(browser, server, signed_in(server, server.token("operator"))) as page:
        page.goto("/what-if")
        page.get_by_label("Risk").fill("0.01")
        page.get_by_role("button", name="Ask").click()
        page.get_by_text("No planned rate changes: margins are learned from 0 hours").wait_for()
        page.get_by_role("button", name="Price six risks").click()
        rows = page.get_by_role("region", name="Cost by risk as a table").locator("tbody tr th")
        expect(rows).to_have_text([f"{share}\u202f%" for share in (1, 2, 5, 10, 20, 50)], timeout=60_000)
        assert page.get_by_role("img", name="Cost by risk").count() == 1
        assert violations(page) == []


@pytest.mark.parametrize("options", [{"viewport": WIDE}, PHONE], ids=["wide", "phone"])
def test_an_slo_is_priced_in_steps_and_plans_are_weighed_by_money_and_energy(
    browser: Browser, fleet: Planned, options: dict[str, Any]
) -> None:
    server = fleet.server
    with opened(browser, server, signed_in(server, server.token("operator")), **options) as page:
        page.goto("/services/shop/a")
        page.route("**/price", lambda route: route.fulfill(status=204))  # the answer takes its time
        page.get_by_role("link", name="Price of its SLO").click()
        page.get_by_text("The SLO is priced, for at most 20 s.").wait_for()
        page.unroute("**/price")
        page.goto("/services/shop/a/price")
        for name in ("Cost by SLO", "Cost by percentile"):
            picture = page.get_by_role("img", name=name).bounding_box()
            assert picture is not None and picture["height"] < 844
        page.locator(".key").get_by_text("promised now").wait_for()
        page.get_by_text("As a table of Cost by SLO").click()
        rows = page.get_by_role("region", name="Cost by SLO as a table").locator("tbody tr")
        expect(rows).to_have_count(10)
        expect(rows.filter(has_text="as promised")).to_have_count(1)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert violations(page) == []
        page.goto("/what-if")
        page.get_by_role("button", name="Weigh money against energy").click()
        page.get_by_role("img", name="Money against energy").wait_for(timeout=60_000)
        expect(page.get_by_role("region", name="Money against energy as a table")).to_contain_text("money")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert violations(page) == []


@pytest.mark.parametrize("options", [{}, PHONE], ids=["wide", "phone"])
def test_the_pages_of_actions_shut_nobody_out(browser: Browser, fleet: Planned, options: dict[str, Any]) -> None:
    server = fleet.server
    plan = server.request("GET", "/api/v1/plans?limit=1").json["items"][0]["generation"]
    broken = violations if options else violations_in_either_light
    with opened(browser, server, signed_in(server, server.admin_token), **options) as page:
        for path in ("/plans", f"/plans/{plan}", "/plans/1", "/nodes/node-1", "/audit", "/what-if"):
            page.goto(path)
            page.get_by_role("navigation", name="Pages", exact=True).wait_for()
            page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
            assert broken(page) == [], path
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


def test_a_plan_is_approved_by_keyboard_alone(browser: Browser, fleet: Planned) -> None:
    server = fleet.server
    plan = propose(fleet, 300.0)
    with opened(browser, server, signed_in(server, server.token("operator"))) as page:
        page.goto(f"/plans/{plan}")
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent").startswith("Approve "):
                break
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/plans/{plan}/approve")
        assert violations(page) == []
        page.get_by_label("Why (for the record)").focus()
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == f"Approve plan {plan}"
        page.keyboard.press("Enter")
        page.get_by_role("status").filter(has_text=f"You approved plan {plan}").wait_for()


def test_what_was_done_is_reported_once_and_not_by_the_address(browser: Browser, fleet: Planned) -> None:
    server = fleet.server
    with opened(browser, server, signed_in(server, server.token("operator"))) as page:
        page.clock.install()
        page.goto("/nodes/node-0?done=cordon")
        page.wait_for_url("**/nodes/node-0")
        expect_said(page, "You cordoned it")
        page.clock.run_for(16_000)
        expect(page.get_by_text("You cordoned it")).to_have_count(0)


def test_a_form_that_is_filled_in_keeps_its_fields_until_it_is_sent(browser: Browser, fleet: Planned) -> None:
    """Or a drain of one GPU would become a drain of the node when the page refreshes before the button is pressed."""
    server = fleet.server
    with opened(browser, server, signed_in(server, server.token("operator"))) as page:
        page.clock.install()
        page.goto("/nodes/node-0")
        page.locator("summary", has_text="Drain").click()
        field = page.locator("#gpu-drain")
        field.fill("1")
        page.get_by_role("button", name="Show what must move").focus()
        page.clock.run_for(16_000)
        page.get_by_text("Paused until you send or empty the form").wait_for()
        assert field.input_value() == "1"
        field.fill("")
        field.blur()
        page.clock.run_for(16_000)
        expect(page.locator("#live")).to_have_text("Live,")


def test_a_refusal_stays_and_its_address_leads_back_to_the_page(browser: Browser, fleet: Planned) -> None:
    server = fleet.server
    with opened(browser, server, signed_in(server, server.token("operator")), refused=(422,)) as page:
        page.clock.install()
        page.goto("/nodes/node-0")
        page.locator("summary", has_text="Cordon").first.click()
        page.locator("#gpu-cordon").fill("first")
        page.get_by_role("button", name="Cordon node-0").click()
        refusal = page.get_by_role("alert").filter(has_text="Refused: GPU 'first' is not understood")
        refusal.wait_for()
        page.clock.run_for(31_000)
        assert refusal.is_visible()
        page.goto("/nodes/node-0/cordon")
        page.wait_for_url("**/nodes/node-0")
    cookie = session(server, server.token("operator"))
    for path, page_of_it in (
        ("/plans/1/pause", "/plans/1"),
        ("/plans/1/rollback", "/plans/1"),
        ("/plans/resume", "/plans"),
    ):
        reply = visit(server, cookie, path)
        assert (reply.status, reply.headers["location"]) == (303, page_of_it)
    assert visit(server, cookie, "/nodes/node-0/erase").status == 404


def test_before_a_drain_of_one_gpu_a_page_names_it_without_scripts_and_on_a_phone(
    browser: Browser, fleet: Planned
) -> None:
    server = fleet.server
    cookie = signed_in(server, server.token("operator"))
    with opened(browser, server, cookie, java_script_enabled=False) as page:
        page.goto("/nodes/node-0")
        page.locator("summary", has_text="Drain").click()
        page.locator("#gpu-drain").fill("1")
        page.get_by_role("button", name="Show what must move").click()
        agree(page, "Drain GPU 1 of node node-0")
        expect_said(page, "You asked to drain GPU 1:")
        page.get_by_text("GPU 1: being drained").wait_for()
    assert server.request("POST", "/api/v1/nodes/node-0/uncordon", {}).status == 200
    admin = session(server, server.admin_token)
    assert "node-0</a> GPU 1" in visit(server, admin, "/audit?verb=drain&name=node-0").text
    assert "node-0</a> GPU 1" in visit(server, admin, "/audit?verb=uncordon&name=node-0").text
    for query, words in (("gpu=9", "there is no GPU 9"), ("hours=soon", "is not understood")):
        refused = visit(server, f"gpuwright={cookie}", f"/nodes/node-0/drain?{query}")
        assert (refused.status, words in refused.text) == (422, True), query
    viewer = session(server, server.token("viewer"))
    assert visit(server, viewer, "/nodes/node-0/drain").headers["location"] == "/nodes/node-0"
    assert visit(server, f"gpuwright={cookie}", "/nodes/nosuch/drain").status == 404
    with opened(browser, server, cookie, **PHONE) as page:
        page.goto("/nodes/node-0/drain?hours=2")
        page.get_by_text("It should be empty within 2 hours.").wait_for()
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")

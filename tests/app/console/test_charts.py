"""The charts on their pages: over each range, with the data as a table, for each reader its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from playwright.sync_api import Browser

from app.store.database.urls import libpq_url
from solvers.planning.plan_fields import gpu_bound
from tests.app.console.test_browser import PHONE, WIDE, opened
from tests.app.console.test_page import words
from tests.app.console.visits import session, visit
from tests.support.axe import violations, violations_in_either_light
from tests.support.planned import Planned
from tests.support.server import RunningServer
from tests.support.soak import SOAK

FILL = """
    DELETE FROM fleet_minute;
    INSERT INTO fleet_minute
    SELECT date_trunc('minute', moment()) - n * interval '1 minute', 12.5, 11.25, 10, 4, 1, 800, 100, 0, 5
    FROM generate_series(0, 4000) AS n WHERE n < 1000 OR n > 2000;
    DELETE FROM service_load;
    INSERT INTO service_load (tenant, service, at, seconds, requests, answers, errors, latency_counts, slow, planned,
        low, high, bands, bands_held, hours_ahead)
    SELECT tenant, service, moment() - n * interval '10 seconds', 10, requests, requests, 0, '{}', 5, 2222,
        .8 * requests, 1.5 * requests, CAST(n % 60 = 0 AS int), CAST(n IN (60, 120, 240) AS int),
        ARRAY[101, 140, 181, 95, 140, 190, 90, 140, 202]
    FROM (VALUES ('shop', 'a', 1230), ('lab', 'x', 4560)) AS load (tenant, service, requests),
         generate_series(1, 300) AS n ON CONFLICT DO NOTHING;
    INSERT INTO cost_day
    SELECT date_trunc('day', moment(), 'UTC') - day * interval '1 day', 'node-0', 0, 1, 'v100', 'eu', 'owned', tenant,
           service, job, 'm', kind, 'measured', 1, nano
    FROM (VALUES ('shop', 'a', '', 'used', 7770000000), ('lab', 'x', '', 'used', 3330000000),
                 ('lab', '', 'train', 'used', 1110000000), ('', '', '', 'idle', 2220000000)
         ) AS cost (tenant, service, job, kind, nano), generate_series(0, 33) AS day;
"""


@pytest.fixture(scope="module")
def server(planned: Planned) -> Iterator[RunningServer]:
    with psycopg.connect(libpq_url(planned.server.database_url), autocommit=True) as connection:
        connection.execute(FILL.encode())
        yield planned.server
        connection.execute(b"DELETE FROM cost_day; DELETE FROM fleet_minute")


@pytest.fixture(scope="module")
def viewer(server: RunningServer) -> str:
    return session(server, server.token("viewer"))


def charts(html: str) -> dict[str, str]:
    """The figures of a page by their titles."""
    return {re.findall(r"<figcaption>([^<]+?) <", part)[0]: part for part in html.split('<figure class="chart"')[1:]}


@pytest.mark.parametrize("name", ["1h", "24h", "7d", "30d"])
def test_the_fleet_has_its_charts_over_each_range(server: RunningServer, viewer: str, name: str) -> None:
    page = visit(server, viewer, f"/?range={name}").text
    found = charts(page)
    assert list(found) == ["Cost", "Answers within the SLO", "GPUs busy", "Power", "Changes"]
    cost = words(found["Cost"])
    assert "Held now 12.50 Planned 11.25 Least possible 10.00" in cost
    assert "between 12.50 and 12.50" in cost
    assert "95.00 %" in words(found["Answers within the SLO"])
    assert "25.0 %" in words(found["GPUs busy"])
    assert f'href="/?range={name}#charts" aria-current="true"' in page


def test_a_time_without_data_is_a_gap_of_the_line(server: RunningServer, viewer: str) -> None:
    def parts(name: str) -> int:
        cost = charts(visit(server, viewer, f"/?range={name}").text)["Cost"]
        path: str = re.findall(r'class="line t0" d="([^"]+)"', cost)[0]
        return path.count("M")

    assert (parts("1h"), parts("7d")) == (1, 2)


def test_times_are_those_of_the_reader(server: RunningServer, viewer: str) -> None:
    cookie = f"{viewer}; gpuwright-zone=Asia/Kathmandu"
    found = charts(visit(server, cookie, "/?range=7d&table=cost").text)
    assert [title for title, part in found.items() if "<table>" in part] == ["Cost"], "only the one that is asked for"
    table = found["Cost"]
    assert re.search(r'<th scope="row">\d+ \w{3} \d\d:45<td>', table)


@pytest.mark.slow
def test_a_service_has_its_rate_with_the_planned_one_and_its_promise(server: RunningServer, viewer: str) -> None:
    for name in ("1h", "24h", "7d", "30d"):
        page = visit(server, viewer, f"/services/shop/a?range={name}").text
        rate = words(charts(page)["Rate"])
        assert "Planned for" in rate and re.search(r"Requests \d", rate), name
        assert "Promised now 98.00 %" in words(charts(page)["Answers within the SLO"])
    assert visit(server, viewer, "/services/shop/a?range=nonsense").status == 200


def test_money_has_the_trend_of_a_month_and_tables_whose_numbers_are_those_of_the_csv(
    server: RunningServer, viewer: str
) -> None:
    page = visit(server, viewer, "/money").text
    found = charts(page)
    assert list(found) == ["Where the money goes", "Cost by tenant", "Cost by service and job"]
    assert "shop 233.10 lab 133.20 Idle parts of GPUs 66.60" in words(found["Cost by tenant"])
    text = words(page)
    assert "Booked today, since 00:00 UTC 14.43" in text
    assert re.search(r"shop 7\.77 \d+\.\d\d lab 4\.44", text), "by tenant"
    assert re.search(r"shop/a 7\.77 .* lab/x 3\.33 .* lab/train job 1\.11 .* Idle parts of GPUs 2\.22", text)
    sheet = visit(server, viewer, "/money/today.csv")
    assert sheet.headers["content-type"].startswith("text/csv")
    assert "attachment" in sheet.headers["content-disposition"]
    lines = sheet.text.splitlines()
    assert lines[0].startswith("tenant,service,job,kind,gpu_hours,cost")
    assert [line.split(",")[5] for line in lines if line.startswith("shop,a,")] == ["7.770000000"]
    assert visit(server, viewer, "/money/year.csv").status in (404, 422)


def test_money_shows_where_it_goes_as_services_and_the_plan_say(server: RunningServer, viewer: str) -> None:
    overview = server.request("GET", "/api/v1/overview").json
    plan = server.request("GET", "/api/v1/plans/current").json["certificate"]
    idle = sum(service["idlePerHour"] for service in overview["services"])
    page = visit(server, viewer, "/money").text
    table = words(page[page.index('aria-label="Where the money goes as a table') :].partition("</table>")[0])
    assert f"Held now {overview['money']['heldPerHour']:,.2f}" in table
    assert f"Planned {plan['resourceCost']:,.2f}" in table
    assert f"Idle parts {idle:,.2f}" in table
    assert ("Against the bound" in table) == (gpu_bound(plan) is not None)
    token = server.token("viewer", tenant="shop")
    own = server.request("GET", "/api/v1/overview", token=token).json["services"]
    assert {one["idlePerHour"] for one in own} == {None}, "neighbours would show in it"


def test_money_has_the_nodes_of_pools_with_what_they_cost(server: RunningServer, viewer: str) -> None:
    assert "Rented from pools" not in visit(server, viewer, "/money").text, "there is no pool"
    known = server.request("GET", "/api/v1/nodes").json["items"][0]["spec"]["gpuType"]
    (kind,) = (i for i in server.request("GET", "/api/v1/gputypes").json["items"] if i["metadata"]["name"] == known)
    spec = {"gpuType": known, "gpusPerNode": 2, "cpuCores": 8, "memoryGib": 64, "max": 3, "hook": "cloud"}
    pool = {"apiVersion": "gpuwright/v1", "kind": "Pool", "metadata": {"name": "burst"}, "spec": spec}
    assert server.request("POST", "/api/v1/apply", [pool]).status == 200
    with psycopg.connect(libpq_url(server.database_url), autocommit=True) as connection:
        connection.execute(RENTED)
        text = words(visit(server, viewer, "/money").text)
        overview = server.request("GET", "/api/v1/overview").json
        own = visit(server, session(server, server.token("viewer", tenant="shop")), "/money").text
        assert server.request("DELETE", "/api/v1/pools/burst").status in (200, 204)
        deleted = words(visit(server, viewer, "/money").text)
        connection.execute(b"DELETE FROM rented_node")
    assert "burst 1 1 starting deleted" in deleted, "its order stands all the same"
    per_hour = 2 * kind["spec"]["pricePerHour"]
    assert re.search(rf"burst 1 1 starting {per_hour:.2f} [\d.]+ [\d.]+ 3\d", text), text
    (shown,) = overview["pools"]
    assert (shown["nodes"], shown["costPerHour"]) == (1, pytest.approx(per_hour))
    assert "Rented from pools" not in own, "it is the money of the fleet"


def test_before_the_first_booking_of_a_month_money_still_has_its_trend(server: RunningServer, viewer: str) -> None:
    month = "day >= date_trunc('month', moment(), 'UTC')"
    with psycopg.connect(libpq_url(server.database_url), autocommit=True) as connection:
        connection.execute(f"CREATE TABLE of_month AS SELECT * FROM cost_day WHERE {month}".encode())
        connection.execute(f"DELETE FROM cost_day WHERE {month}".encode())
        page = visit(server, viewer, "/money").text
        connection.execute(b"INSERT INTO cost_day SELECT * FROM of_month; DROP TABLE of_month")
    assert "Nothing is booked this month yet" in page
    assert list(charts(page)) == ["Where the money goes", "Cost by tenant", "Cost by service and job"]


def test_a_tenant_sees_the_charts_of_its_own(server: RunningServer) -> None:
    own = session(server, server.token("viewer", tenant="shop"))
    assert list(charts(visit(server, own, "/?range=1h").text)) == ["Answers within the SLO"]
    assert visit(server, own, "/services/lab/x").status == 404
    money = visit(server, own, "/money").text
    assert list(charts(money)) == ["Cost by service and job"]
    for text in (words(money), visit(server, own, "/money/month.csv").text):
        assert "shop" in text and "lab" not in text and "dle" not in text.replace("middle", "")


RENTED = b"""
    INSERT INTO rented_node (key, node, pool, hook, state, asked_at, since, start_seconds, minimum_seconds, paid_at)
    SELECT 'burst-1', 'burst-1', 'burst', 'cloud', 'starting', at, at, 60, 600, at
    FROM (SELECT moment() - interval '30 minutes' AS at) AS ordered
"""
ROWS_LEFT_OUT = "" if SOAK else "figure tbody tr:nth-child(n + 4)"  # every day the first rows, which the rest equal
CHART_PAGES = (
    "/?range=7d", "/?range=1h&table=cost", "/services/shop/a?range=1h&table=rate", "/money?table=works",
    "/services/shop/a?range=24h",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("look", ["wide", "phone"])
def test_charts_are_read_by_eye_by_ear_and_on_a_phone(
    browser: Browser, server: RunningServer, viewer: str, look: str
) -> None:
    options: dict[str, Any] = PHONE if look == "phone" else {"viewport": WIDE}
    broken = violations if look == "phone" else violations_in_either_light
    with opened(browser, server, viewer.partition("=")[2], **options) as page:
        for path in CHART_PAGES:
            page.goto(path)
            assert page.evaluate("document.documentElement.scrollWidth") <= (390 if look == "phone" else 1440), path
            assert broken(page, ROWS_LEFT_OUT) == [], path
            chart = page.get_by_role("img").first.bounding_box()
            assert chart is not None and chart["height"] >= 120, path
            fits = "tables => tables.every(table => table.scrollWidth <= table.parentElement.clientWidth)"
            assert page.locator(".amounts").evaluate_all(fits), "no amount is out of sight"


@pytest.mark.slow
@pytest.mark.parametrize("look", ["wide", "phone"])
def test_a_rate_is_seen_over_the_band_that_was_forecast_and_before_that_of_the_next_hours(
    browser: Browser, server: RunningServer, viewer: str, look: str
) -> None:
    options: dict[str, Any] = PHONE if look == "phone" else {"viewport": WIDE}
    with opened(browser, server, viewer.partition("=")[2], **options) as page:
        page.goto("/services/shop/a?range=24h")
        chart = page.locator("#chart-rate")
        chart.get_by_text("In 3 of 5 steps of ten minutes the rate lay in the band").wait_for()
        past, ahead = (chart.locator(f"svg[role=img] path.band{look}") for look in (":not(.guess)", ".guess"))
        before, after = past.bounding_box(), ahead.bounding_box()
        assert before is not None and after is not None
        assert before["x"] + before["width"] <= after["x"] + 1, "what is to come lies to the right"
        assert before["height"] > 3 and after["width"] > 20
        page.goto("/services/shop/a?range=7d")
        assert chart.locator("path.band.guess").count() == 0, "hours are too short to be seen there"
        assert chart.locator("svg[role=img] path.band").count() == 1


@pytest.mark.slow
def test_a_range_is_chosen_by_keyboard_alone(browser: Browser, server: RunningServer, viewer: str) -> None:
    with opened(browser, server, viewer.partition("=")[2]) as page:
        page.goto("/services/shop/a")
        page.get_by_role("link", name="7d").focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**/services/shop/a?range=7d#charts")
        assert page.get_by_role("heading", name="The last 7 days").is_visible()
        page.keyboard.press("Tab")  # on from the heading that the address names
        page.get_by_role("link", name="As a table of Rate").focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**/services/shop/a?range=7d&table=rate#chart-rate")
        assert page.get_by_role("region", name="Rate as a table").is_visible()
        assert page.get_by_role("img", name="Rate").is_visible()

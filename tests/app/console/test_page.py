"""What the page shows, to whom, and that nothing of what it is told becomes markup."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import quote

import psycopg
import pytest
from psycopg.types.json import Json

from app.store.database.urls import libpq_url
from tests.app.console.visits import session, visit
from tests.support.planned import Planned
from tests.support.server import RunningServer

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'"
PAGES = ("/", "/services", "/plans", "/money", "/events", "/jobs")


@pytest.fixture(scope="module")
def server(planned: Planned) -> RunningServer:
    return planned.server


@pytest.fixture(scope="module")
def viewer(server: RunningServer) -> str:
    return session(server, server.token("viewer"))


def words(html: str) -> str:
    """What somebody reads."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", html))).replace("\N{NARROW NO-BREAK SPACE}", " ")


def test_what_is_unserved_is_said_first_with_the_service_that_is_short(server: RunningServer, viewer: str) -> None:
    page = visit(server, viewer).text
    trouble = page[page.index('id="trouble"') : page.index('id="fleet"')]
    assert "service is not fully served" in trouble
    assert "lab/x" in trouble


@pytest.mark.slow
def test_the_page_says_the_plan_with_its_reasons_the_fleet_and_what_services_cost(
    server: RunningServer, viewer: str
) -> None:
    plan = server.request("GET", "/api/v1/plans/current").json
    page = visit(server, viewer, f"/plans/{plan['generation']}").text
    assert f"Plan {plan['generation']}: {plan['state']}" in words(page)
    assert plan["unserved"][0]["reason"] in words(page)
    assert "4 of 4 GPUs in use" in words(visit(server, viewer).text)
    page = visit(server, viewer, "/services").text
    for one in server.request("GET", "/api/v1/overview").json["services"]:
        row = page[page.index(f">{one['service']}</a></th>") :]
        assert f'data-label="Cost/h">{one["pricePerHour"]:,.2f}' in row[: row.index("</tr>")]


@pytest.mark.slow
def test_a_plan_stands_beside_those_of_other_planners(server: RunningServer, viewer: str) -> None:
    listed = server.request("GET", "/api/v1/plans").json["items"]
    plans = (server.request("GET", f"/api/v1/plans/{one['generation']}").json for one in listed)
    plan = next(one for one in plans if (one["certificate"] or {}).get("otherPlanners"))
    page = visit(server, viewer, f"/plans/{plan['generation']}").text
    table = page[page.index("Plans of other planners") :].partition("</table>")[0]
    rows = [words(row).split() for row in re.findall(r'<tr><th scope="row">(.+?)</tr>', table)]
    others = plan["certificate"]["otherPlanners"]
    assert [row[0] for row in rows] == [one["planner"] for one in others]
    assert len(rows) > 3
    for row, one in zip(rows, others, strict=True):
        told = " ".join(row[1:])
        if one["resourceCost"] is None:
            assert told == "breaks a rule"
        else:
            assert told.startswith(f"{one['resourceCost']:,.2f} ")
            share = re.search(r" ([\d.]+) % this plan's$", told)
            assert share
            assert float(share[1]) == pytest.approx(100 * one["servedShare"], abs=0.06)
    own = session(server, server.token("viewer", tenant="shop"))
    assert "Plans of other planners" not in visit(server, own, f"/plans/{plan['generation']}").text


@pytest.mark.slow
@pytest.mark.parametrize(("scope", "tenant"), [("viewer", ""), ("operator", ""), ("admin", ""), ("operator", "shop")])
def test_the_navigation_offers_only_pages_that_the_token_may_see(
    server: RunningServer, scope: str, tenant: str
) -> None:
    cookie = session(server, server.token(scope, tenant=tenant))
    navigation = visit(server, cookie).text.partition("<nav")[2].partition("</nav>")[0]
    offered = re.findall(r'href="([^"]+)"', navigation)
    assert {path: visit(server, cookie, path).status for path in offered} == dict.fromkeys(offered, 200)
    assert ("/audit" in offered) == (scope == "admin")
    assert ("/what-if" in offered) == (scope != "viewer" and not tenant)


def test_the_price_of_held_gpus_stands_beside_the_planned_cost(server: RunningServer, viewer: str) -> None:
    assert "Held GPUs per hour 0.00" in words(visit(server, viewer).text), "no node reports a copy"
    with psycopg.connect(libpq_url(server.database_url), autocommit=True) as connection:
        (before,) = connection.execute("SELECT body FROM outlook WHERE name = 'money'").fetchone() or ({},)
        connection.execute("UPDATE outlook SET body = %s WHERE name = 'money'", [Json({**before, "heldPerHour": 7.25})])
        assert "Held GPUs per hour 7.25" in words(visit(server, viewer).text)
        connection.execute("UPDATE outlook SET body = %s WHERE name = 'money'", [Json(before)])


def test_a_silent_node_and_a_failed_gpu_are_said_in_words(planned: Planned, server: RunningServer, viewer: str) -> None:
    with psycopg.connect(libpq_url(server.database_url), autocommit=True) as connection:
        before = connection.execute("SELECT received_at FROM node_state WHERE node = 'node-1'").fetchone()
        connection.execute(
            "UPDATE node_state SET received_at = received_at - interval '5 minutes' WHERE node = 'node-1'"
        )
        page = visit(server, viewer).text
        assert before is not None
        connection.execute("UPDATE node_state SET received_at = %s WHERE node = 'node-1'", list(before))
    assert "1 node is silent node-1 (for 5 min)" in words(page)
    assert re.search(r'aria-label="node-1: silent for 5.min; \d GPUs, ', page)
    assert "silent" not in visit(server, viewer).text


@pytest.mark.slow
def test_a_node_and_a_service_have_pages_of_their_own(server: RunningServer, viewer: str) -> None:
    assert "Node node-0" in words(visit(server, viewer, "/nodes/node-0").text)
    assert "only shop/a is coloured" in words(visit(server, viewer, "/?service=shop/a").text)
    placed = next(
        one for one in server.request("GET", "/api/v1/plans/current").json["instances"] if one["service"] == "shop/a"
    )
    assert f"{placed['node']}/{placed['gpu']}" in words(visit(server, viewer, "/services/shop/a").text)


@pytest.mark.slow
def test_pages_lead_on_to_what_is_asked_next(server: RunningServer, viewer: str) -> None:
    operator = session(server, server.token("operator"))
    for page, link in (
        ("/services/shop/a", "/what-if?service=shop/a"),
        ("/nodes/node-0", "/what-if?node=node-0"),
    ):
        assert f'href="{link}"' in visit(server, operator, page).text
        assert link not in visit(server, viewer, page).text, "its token may not ask"
        assert f'value="{link.partition("=")[2]}"' in visit(server, operator, link).text


@pytest.mark.slow
def test_a_state_keeps_its_capitals_and_amounts_have_their_currency(server: RunningServer, viewer: str) -> None:
    assert "Slo" not in visit(server, viewer, "/services/shop/a").text
    assert "its slo" not in visit(server, viewer, "/services/shop/a").text
    assert "Cost per hour EUR" in words(visit(server, viewer, "/plans").text)
    assert "EUR an hour" in words(visit(server, viewer, "/plans/1").text)


def test_an_event_that_came_again_says_since_when(server: RunningServer, viewer: str) -> None:
    with psycopg.connect(libpq_url(server.database_url), autocommit=True) as connection:
        connection.execute(
            "INSERT INTO event (at, last_at, times, reason, kind, name, message, fingerprint) "
            "VALUES (moment() - interval '2 hours', moment(), 7, 'operator', 'Node', 'node-0', 'again', 'again')"
        )
        page = words(visit(server, viewer, "/events").text)
        connection.execute("DELETE FROM event WHERE fingerprint = 'again'")
    assert re.search(r"\W7 since [-0-9 ]*\d\d:\d\d:\d\d ", page)


def test_the_end_of_the_list_of_plans_is_not_taken_for_a_fleet_without_plans(
    server: RunningServer, viewer: str
) -> None:
    page = words(visit(server, viewer, "/plans?before=1").text)
    assert "No plan is older." in page
    assert "There is no plan yet" not in page


def test_services_are_found_by_name_state_and_order(server: RunningServer, viewer: str) -> None:
    def listed(query: str) -> list[str]:
        page = visit(server, viewer, f"/services{query}").text
        return re.findall(r'<tr class="\w+"><th scope="row"><a [^>]+>([^<]+)</a>', page)

    assert set(listed("")) == {"shop/a", "shop/b", "shop/c", "lab/x"}
    assert listed("")[0] == "lab/x"
    assert listed("?find=SHOP&sort=name") == ["shop/a", "shop/b", "shop/c"]
    assert listed("?state=unserved") == ["lab/x"]
    assert listed("?find=none") == []


@pytest.mark.slow
def test_nonsense_in_the_address_is_as_if_it_were_not_there(server: RunningServer, viewer: str) -> None:
    for query in ("page=-1", "page=99999999999999999999", "fleet=x", "sort=drop", "state=%00x", "find=" + "n" * 500):
        for path in PAGES:
            assert visit(server, viewer, f"{path}?{query}").status in (200, 400), query
    assert visit(server, viewer, "/services?page=2").status == 200


def test_what_does_not_exist_is_a_page_that_says_so(server: RunningServer, viewer: str) -> None:
    for path in ("/nowhere", "/services/shop/nosuch", "/services/shop", "/nodes/nosuch", "/plans/999999", "/plans/x"):
        reply = visit(server, viewer, path)
        assert (reply.status, reply.headers["content-type"]) == (404, "text/html; charset=utf-8"), path
        assert "Not found There is no " in words(reply.text)
        assert '<nav aria-label="Pages">' in reply.text
        assert visit(server, "", path).headers["location"] == f"/sign-in?to={path}"
    assert server.request("GET", "/nowhere", token="").status == 401, "to a program, not to a browser"
    assert visit(server, viewer, "/api/v1/nowhere").headers["content-type"] == "application/problem+json"


def test_a_method_that_a_page_does_not_have_is_refused_by_a_page(server: RunningServer, viewer: str) -> None:
    reply = visit(server, viewer, "/services", "DELETE")
    assert (reply.status, reply.headers["content-type"]) == (405, "text/html; charset=utf-8")
    assert (reply.headers["allow"], reply.headers["content-security-policy"][:18]) == ("GET", "default-src 'none'")
    assert '<nav aria-label="Pages">' in reply.text
    assert '<nav aria-label="Pages">' not in visit(server, "", "/services", "DELETE").text


def test_plans_say_how_many_services_they_change_and_events_what_they_do(server: RunningServer, viewer: str) -> None:
    assert re.search(r"\d services: lab/x, ", words(visit(server, viewer, "/plans").text))
    assert re.search(r"Plan start \d+ instances", words(visit(server, viewer, "/events?find=planned").text))


def test_a_link_to_a_job_shows_no_other_whose_name_it_begins(server: RunningServer, viewer: str) -> None:
    with psycopg.connect(libpq_url(server.database_url), autocommit=True) as connection:
        for name in ("train", "train-2"):
            connection.execute(
                "INSERT INTO object (uid, kind, tenant, name, labels, spec, status, generation, resource_version,"
                " selectable, created_at, updated_at)"
                " VALUES (gen_random_uuid(), 'Job', 'lab', %s, '{}', '{}', '{}', 1, 1, '{}', now(), now())",
                [name],
            )
        found = [words(visit(server, viewer, f"/jobs?{query}").text) for query in ("name=lab/train", "find=lab/train")]
        none = visit(server, viewer, "/jobs?name=lab/trai").text
        connection.execute("DELETE FROM object WHERE kind = 'Job' AND tenant = 'lab'")
    assert ["train-2" in page for page in found] == [False, True]
    assert "Only the job lab/train" in found[0]
    assert "There is no such job" in none


@pytest.mark.slow
def test_a_tenants_viewer_sees_its_own_and_nothing_by_which_another_could_be_named(server: RunningServer) -> None:
    cookie = session(server, server.token("viewer", tenant="shop"))
    whole = visit(server, session(server, server.token("viewer")), "/services").text
    assert "lab/x" in whole
    nodes = {one["node"] for one in server.request("GET", "/api/v1/plans/current").json["instances"]}
    asked = ("/?service=lab/x", "/services?find=lab", "/services?sort=cost", *(f"/nodes/{node}" for node in nodes))
    for path in (*PAGES, *asked):
        reply = visit(server, cookie, path)
        assert reply.status in (200, 404), path
        assert not re.search(r"\blab\b", words(reply.text)), path
        assert ("lab/x" in reply.text) is ("lab/x" in path)  # the address itself comes back, and nothing else
        for of_fleet in ("Leader", "Nodes that could be given back", "Nodes reporting", "Above the cheapest"):
            assert of_fleet not in reply.text
    assert visit(server, cookie, "/services/lab/x").status == 404
    page = words(visit(server, cookie).text)
    assert "tenant shop" in page
    assert "Services served 0 of 3" in page  # planned, and no copy answers here


def test_a_tenants_operator_has_a_session_of_the_tenant(server: RunningServer) -> None:
    cookie = session(server, server.token("operator", tenant="shop"))
    assert "lab/x" not in visit(server, cookie, "/services").text


@pytest.mark.slow
def test_what_nodes_events_and_the_address_say_never_becomes_markup(server: RunningServer, viewer: str) -> None:
    with psycopg.connect(libpq_url(server.database_url), autocommit=True) as connection:
        connection.execute(
            "INSERT INTO event (at, last_at, reason, severity, kind, name, message, fingerprint) "
            "VALUES (moment(), moment(), 'planned', 'alarm', 'Node', %s, %s, 'x')",
            [HOSTILE, HOSTILE],
        )
        connection.execute(
            "UPDATE node_detail SET detail = jsonb_set(detail, '{gpus}', jsonb_build_array(jsonb_build_object("
            "'index', 0, 'health', 'failed', 'reason', CAST(%s AS text)))) WHERE node = 'node-0'",
            [HOSTILE],
        )
        hostile = quote(HOSTILE)
        asked = (f"/services?find={hostile}", f"/?service={hostile}", f"/nodes/{hostile}", f"/{hostile}")
        pages = [visit(server, viewer, path).text for path in ("/", "/nodes/node-0", "/events", *asked)]
        connection.execute("UPDATE node_detail SET detail = detail - 'gpus' WHERE node = 'node-0'")
        connection.execute("DELETE FROM event WHERE fingerprint = 'x'")
    for page in pages:
        assert "<script>" not in page
        assert "<img" not in page
    assert "&lt;script&gt;alert(1)" in pages[0]
    assert "1 GPU is unhealthy" in words(pages[0])


def test_what_goes_wrong_is_said_on_a_page(server: RunningServer, viewer: str) -> None:
    reply = visit(server, viewer, "/services?find=%00")
    assert reply.status == 400
    assert reply.headers["content-type"].startswith("text/html")
    assert reply.headers["content-security-policy"]
    assert "<h1>The request is malformed</h1>" in reply.text

"""Who may see what: a person on the console, and a tenant with its own token; and what is kept of who did what."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest

from tests.tour.running import TourFleet
from tests.tour.world import served


@pytest.fixture(scope="module")
def cookie(fleet: TourFleet) -> str:
    """A session of the console, opened by a link as `gpuwright console` prints it."""
    link = urlsplit(re.findall(r"http://\S+/sign-in\?link=\S+", fleet.cli("console"))[0])
    headers = {"Accept": "text/html", "Content-Type": "application/x-www-form-urlencoded"}
    opened = fleet.request("POST", link.path, link.query.encode(), token="", headers=headers)
    assert opened.status == 303, opened.text
    again = fleet.request("POST", link.path, link.query.encode(), token="", headers=headers)
    assert again.status == 401, "a link works once"
    return opened.headers["set-cookie"].partition(";")[0]


def test_a_link_opens_the_console_once_and_nobody_else_comes_in(fleet: TourFleet, cookie: str) -> None:
    refused = fleet.request("GET", "/", token="", headers={"Accept": "text/html"})
    assert (refused.status, refused.headers["location"]) == (303, "/sign-in")
    front = fleet.request("GET", "/", token="", headers={"Accept": "text/html", "Cookie": cookie})
    assert front.status == 200
    assert "north" in front.text


@pytest.mark.parametrize(
    ("path", "shown"),
    [("/services/shop/search", "search"), ("/nodes/south", "v100-16gb"), ("/plans", "plan")],
)
def test_a_page_of_the_console_shows_what_the_fleet_does(fleet: TourFleet, cookie: str, path: str, shown: str) -> None:
    page = fleet.request("GET", path, token="", headers={"Accept": "text/html", "Cookie": cookie})
    assert page.status == 200, page.text
    assert shown in page.text


def test_a_tenants_token_sees_its_own_services_and_another_tenant_where_others_are(fleet: TourFleet) -> None:
    with fleet.declared(served("own", "guest")):
        made = fleet.request("POST", "/api/v1/tokens", {"scope": "operator", "tenant": "guest", "label": "tour"}).json
        seen = fleet.request("GET", "/api/v1/services", token=made["token"]).json["items"]
        assert [(one["metadata"]["tenant"], one["metadata"]["name"]) for one in seen] == [("guest", "own")]
        assert fleet.request("GET", "/api/v1/services/shop/search", token=made["token"]).status in (403, 404)
        fleet.until(lambda: bool(fleet.copies("guest/own")), "it is served")
        (node,) = fleet.nodes_of("guest/own")
        told = fleet.request("GET", f"/api/v1/nodes/{node}/state", token=made["token"]).json
        assert {copy["service"] for copy in told["copies"]} == {"own"}
        assert told["others"]["tenant"] == "another tenant"
        assert told["others"]["copies"] == len(fleet.agents[node].copies()) - 1
        revoked = fleet.request("DELETE", f"/api/v1/tokens/{made['token'].split('_')[1]}")
        assert revoked.status == 200
        assert fleet.request("GET", "/api/v1/services", token=made["token"]).status == 401


def test_the_audit_names_who_declared_what(fleet: TourFleet) -> None:
    with fleet.declared(served("audited", "guest")):
        entries = fleet.get("audit?kind=Service&name=audited")["items"]
    assert [entry["verb"] for entry in entries][-1] == "create"

"""Services, jobs, nodes and plans are found by a part of their name; a single one opens its page."""

from __future__ import annotations

import re

import pytest

from tests.app.console.visits import session, visit
from tests.support.planned import Planned
from tests.support.server import RunningServer


@pytest.fixture(scope="module")
def server(planned: Planned) -> RunningServer:
    return planned.server


@pytest.fixture(scope="module")
def viewer(server: RunningServer) -> str:
    return session(server, server.token("viewer"))


def hits(server: RunningServer, cookie: str, find: str) -> list[tuple[str, str]]:
    page = visit(server, cookie, f"/search?find={find}").text
    return re.findall(r'<li><a href="([^"]+)">[^<]+</a> <small>(\w+)</small></li>', page)


def test_what_bears_the_name_is_listed_and_a_single_one_is_opened(server: RunningServer, viewer: str) -> None:
    assert hits(server, viewer, "shop") == [(f"/services/shop/{name}", "service") for name in "abc"]
    assert hits(server, viewer, "NODE") == [(f"/nodes/node-{number}", "node") for number in (0, 1)]
    for find, page in (("lab/x", "/services/lab/x"), ("node-1", "/nodes/node-1"), ("plan 1", "/plans/1")):
        found = visit(server, viewer, f"/search?find={find.replace(' ', '%20')}")
        assert (found.status, found.headers["location"]) == (303, page)


def test_what_nothing_bears_and_nothing_at_all_say_what_is_found(server: RunningServer, viewer: str) -> None:
    for find in ("nothing-is-called-so", "", "999999", "9" * 40):
        found = visit(server, viewer, f"/search?find={find}")
        assert found.status == 200
        assert "plans by their number" in found.text
    assert "No service, job, node or plan" not in visit(server, viewer, "/search").text


def test_a_tenant_finds_its_own_and_the_nodes_that_it_runs_on(server: RunningServer) -> None:
    own = session(server, server.token("viewer", tenant="lab"))
    assert visit(server, own, "/search?find=x").headers["location"] == "/services/lab/x"
    assert hits(server, own, "shop") == []
    placed = {line["node"] for line in server.request("GET", "/api/v1/plans/current").json["instances"]
              if line["service"] == "lab/x"}  # fmt: skip
    assert len(placed) > 1
    assert {link for link, _ in hits(server, own, "node")} == {f"/nodes/{name}" for name in placed}

"""An edit is undone by a form: the object is as it was before, unless somebody has changed it since."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.app.console.test_forged import post, proof
from tests.app.console.visits import session, visit
from tests.support.planned import Planned
from tests.support.server import RunningServer

pytestmark = pytest.mark.slow

SERVICE = "/api/v1/services/shop/b"
POLICY = "/api/v1/policies/default"


@pytest.fixture
def server(planned: Planned) -> Iterator[RunningServer]:
    specs = {path: planned.server.request("GET", path).json["spec"] for path in (SERVICE, POLICY)}
    yield planned.server
    for path, spec in specs.items():
        assert planned.server.request("PUT", path, {"spec": spec}).status in (200, 201)


def edit(server: RunningServer, path: str, **fields: object) -> int:
    """Changes an object; returns the number of the audit's entry."""
    spec = server.request("GET", path).json["spec"] | fields
    assert server.request("PUT", path, {"spec": spec}).status == 200
    return newest(server)


def newest(server: RunningServer) -> int:
    return int(server.request("GET", "/api/v1/audit?limit=1").json["items"][0]["id"])


def test_an_edit_is_undone_after_a_page_that_says_what_it_puts_back(server: RunningServer) -> None:
    before = server.request("GET", SERVICE).json["spec"]
    entry = edit(server, SERVICE, ratePerSecond=175.5, slo={"latencyMs": 150, "percentile": 98})
    cookie = session(server, server.admin_token)
    assert f'href="/audit/{entry}/undo"' in visit(server, cookie, "/audit?kind=Service&name=shop/b").text
    asked = visit(server, cookie, f"/audit/{entry}/undo").text
    assert "spec.ratePerSecond: 175.5 → 150.0" in asked
    assert "spec.slo.latencyMs: 150 → 120" in asked
    assert 'href="/what-if?service=shop/b&amp;slo=120&amp;rate=150"' in asked
    assert server.request("GET", SERVICE).json["spec"] != before, "it has only asked"
    done = post(server, cookie, f"/audit/{entry}/undo", {"form": proof(server, cookie, f"/audit/{entry}/undo")})
    assert (done.status, done.headers["location"]) == (303, "/audit?kind=Service&name=shop/b")
    assert server.request("GET", SERVICE).json["spec"] == before
    last = server.request("GET", "/api/v1/audit?limit=1").json["items"][0]
    assert last["verb"] == "update"
    assert last["detail"].startswith("from the console, session ")


def test_a_deleted_object_exists_again(server: RunningServer) -> None:
    before = server.request("GET", SERVICE).json["spec"]
    assert server.request("DELETE", SERVICE).status == 200
    entry, cookie = newest(server), session(server, server.admin_token)
    assert "It exists again." in visit(server, cookie, f"/audit/{entry}/undo").text
    assert post(server, cookie, f"/audit/{entry}/undo", {"form": proof(server, cookie)}).status == 303
    assert server.request("GET", SERVICE).json["spec"] == before


def test_what_was_changed_since_stays(server: RunningServer) -> None:
    first, second = edit(server, SERVICE, ratePerSecond=160.0), edit(server, SERVICE, ratePerSecond=161.0)
    cookie = session(server, server.admin_token)
    form = {"form": proof(server, cookie)}
    refused = post(server, cookie, f"/audit/{first}/undo", form)
    assert refused.status == 409
    assert "has been changed since this edit" in refused.text
    assert visit(server, cookie, f"/audit/{first}/undo").status == 409
    assert server.request("GET", SERVICE).json["spec"]["ratePerSecond"] == 161.0
    assert post(server, cookie, f"/audit/{second}/undo", form).status == 303
    assert post(server, cookie, f"/audit/{second}/undo", form).status == 409, "once"


def test_only_who_may_read_the_audit_and_write_the_object_undoes(server: RunningServer) -> None:
    entry = edit(server, SERVICE, ratePerSecond=163.0)
    for token in (server.token("operator"), server.token("viewer"), server.token("operator", tenant="shop")):
        cookie = session(server, token)
        assert visit(server, cookie, f"/audit/{entry}/undo").status == 403
        assert post(server, cookie, f"/audit/{entry}/undo", {"form": proof(server, cookie)}).status == 403
    cookie = session(server, server.admin_token)
    assert post(server, cookie, f"/audit/{entry}/undo", {"form": "forged"}).status == 403
    assert server.request("GET", SERVICE).json["spec"]["ratePerSecond"] == 163.0


@pytest.mark.parametrize("entry", ["0", "x", "9" * 30, "999999"])
def test_what_is_no_edit_has_no_page(server: RunningServer, entry: str) -> None:
    assert visit(server, session(server, server.admin_token), f"/audit/{entry}/undo").status == 404


def test_a_sign_in_is_no_edit(server: RunningServer) -> None:
    cookie = session(server, server.admin_token)
    assert visit(server, cookie, f"/audit/{newest(server)}/undo").status == 404

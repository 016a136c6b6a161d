"""An edit is undone by a form: the object is as it was before, unless somebody has changed it since."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser

from app.console.edits import confirm_delete
from tests.app.console.test_browser import PHONE, WIDE, opened
from tests.app.console.test_forged import post, proof
from tests.app.console.visits import session, visit
from tests.support.axe import violations
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


def create(server: RunningServer, path: str, spec: object) -> int:
    assert server.request("PUT", path, {"spec": spec}).status == 201
    return newest(server)


def test_a_create_is_undone_by_a_delete_that_says_what_stops(server: RunningServer) -> None:
    path = "/api/v1/services/shop/extra"
    entry = create(server, path, server.request("GET", SERVICE).json["spec"])
    cookie = session(server, server.admin_token)
    assert f'href="/audit/{entry}/undo"' in visit(server, cookie, "/audit?kind=Service&name=shop/extra").text
    asked = visit(server, cookie, f"/audit/{entry}/undo").text
    assert "Service shop/extra is deleted: before the create by" in asked
    assert server.request("GET", path).status == 200, "it has only asked"
    done = post(server, cookie, f"/audit/{entry}/undo", {"form": proof(server, cookie, f"/audit/{entry}/undo")})
    assert (done.status, done.headers["location"]) == (303, "/audit?kind=Service&name=shop/extra")
    assert server.request("GET", path).status == 404
    last = server.request("GET", "/api/v1/audit?limit=1").json["items"][0]
    assert (last["verb"], last["name"]) == ("delete", "extra")
    assert post(server, cookie, f"/audit/{entry}/undo", {"form": proof(server, cookie)}).status == 409, "once"
    again = visit(server, cookie, f"/audit/{last['id']}/undo").text
    assert "It exists again." in again, "an undo can be undone"


def test_an_object_that_somebody_created_again_alike_is_not_deleted_by_the_undo_of_the_first_create(
    server: RunningServer,
) -> None:
    path, spec = "/api/v1/services/shop/extra", server.request("GET", SERVICE).json["spec"]
    first = create(server, path, spec)
    assert server.request("DELETE", path).status == 200
    create(server, path, spec)
    cookie = session(server, server.admin_token)
    assert visit(server, cookie, f"/audit/{first}/undo").status == 409
    assert post(server, cookie, f"/audit/{first}/undo", {"form": proof(server, cookie)}).status == 409
    assert server.request("DELETE", path).status == 200


def test_a_create_that_others_refer_to_is_not_undone_and_they_are_named(server: RunningServer) -> None:
    model, path = server.request("GET", SERVICE).json["spec"]["model"], "/api/v1/services/shop/extra"
    spec = server.request("GET", f"/api/v1/models/{model}").json["spec"]
    made = create(server, "/api/v1/models/undone", spec)
    create(server, path, server.request("GET", SERVICE).json["spec"] | {"model": "undone"})
    cookie = session(server, server.admin_token)
    refused = visit(server, cookie, f"/audit/{made}/undo")
    assert refused.status == 409
    assert "shop/extra" in refused.text
    assert post(server, cookie, f"/audit/{made}/undo", {"form": proof(server, cookie)}).status == 409
    assert server.request("DELETE", path).status == 200
    assert "Nothing that is declared refers to it." in visit(server, cookie, f"/audit/{made}/undo").text
    assert post(server, cookie, f"/audit/{made}/undo", {"form": proof(server, cookie)}).status == 303
    assert server.request("GET", "/api/v1/models/undone").status == 404


def test_the_create_of_a_service_that_runs_names_its_instances() -> None:
    body = {"instances": [{"service": "shop/a"}, {"service": "shop/a"}, {"service": "shop/b"}], "jobs": []}
    row = {"id": 7, "kind": "Service", "tenant": "shop", "name": "a", "verb": "create", "principal": "t1"}
    ask = confirm_delete(row, body)  # type: ignore[arg-type]
    assert ask.effects[-1] == "2 instances stop; requests to it are refused."
    job = {**row, "kind": "Job"}
    lines = {"instances": [], "jobs": [{"job": "shop/a", "node": "n-1"}]}
    assert confirm_delete(job, lines).effects[-1] == "It ends on n-1; what it has not saved is lost."  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"viewport": WIDE}, PHONE], ids=["wide", "phone"])
def test_a_create_is_undone_in_a_browser(browser: Browser, server: RunningServer, options: dict[str, Any]) -> None:
    path = "/api/v1/services/shop/extra"
    entry = create(server, path, server.request("GET", SERVICE).json["spec"])
    cookie = session(server, server.admin_token).partition("=")[2]
    with opened(browser, server, cookie, **options) as page:
        page.goto("/audit?kind=Service&name=shop/extra")
        page.get_by_role("link", name=f"Undo entry {entry}").click()
        page.get_by_role("heading", name="Undo the create of Service shop/extra?").wait_for()
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.get_by_role("button", name="Delete it").click()
        page.wait_for_url("**/audit?kind=Service&name=shop/extra")
        page.get_by_role("cell", name="delete").first.wait_for()
    assert server.request("GET", path).status == 404


@pytest.mark.parametrize("entry", ["0", "x", "9" * 30, "999999"])
def test_what_is_no_edit_has_no_page(server: RunningServer, entry: str) -> None:
    assert visit(server, session(server, server.admin_token), f"/audit/{entry}/undo").status == 404


def test_a_sign_in_is_no_edit(server: RunningServer) -> None:
    cookie = session(server, server.admin_token)
    assert visit(server, cookie, f"/audit/{newest(server)}/undo").status == 404

"""A form of the console changes something only for its own session, from its own page, within the token's rights."""

from __future__ import annotations

import http.client
import re
import time
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from app.access import Principal, Scope
from app.console.forms import form_token
from app.http.gate import SLOW_BODY_SECONDS
from tests.app.console.visits import FORM, session, visit
from tests.support.patience import patience
from tests.support.planned import Planned
from tests.support.server import Reply, RunningServer


@pytest.fixture(scope="module")
def server(planned: Planned) -> Iterator[RunningServer]:
    yield planned.server
    planned.server.request("POST", "/api/v1/nodes/node-1/uncordon", {})


@pytest.fixture(scope="module")
def operator(server: RunningServer) -> str:
    return session(server, server.token("operator"))


def proof(server: RunningServer, cookie: str, path: str = "/nodes/node-1") -> str:
    found = re.search(r'name="form" value="([^"]+)"', visit(server, cookie, path).text)
    return found[1] if found else ""


def post(server: RunningServer, cookie: str, path: str, fields: dict[str, str], **headers: str) -> Reply:
    sent = {**FORM, "Cookie": cookie, **headers}
    return server.request("POST", path, urlencode(fields).encode(), token="", headers=sent)


def cordoned(server: RunningServer) -> list[str]:
    return [line["mode"] for line in server.request("GET", "/api/v1/cordons?node=node-1").json["items"]]


@pytest.mark.slow
def test_a_form_of_the_page_is_accepted_and_audited_under_the_token(server: RunningServer) -> None:
    token = server.token("operator")
    cookie = session(server, token)
    done = post(server, cookie, "/nodes/node-1/cordon", {"form": proof(server, cookie), "message": "fan is loud"})
    assert (done.status, done.headers["location"]) == (303, "/nodes/node-1?done=cordon")
    assert cordoned(server) == ["cordon"]
    assert "You cordoned it" in visit(server, cookie, done.headers["location"]).text
    entry = server.request("GET", "/api/v1/audit?verb=cordon&limit=1").json["items"][0]
    assert (entry["principal"], entry["scope"]) == (token.split("_")[1], "operator")
    assert entry["detail"] == f"from the console, session {cookie.split('_')[1]}"
    again = post(server, cookie, "/nodes/node-1/uncordon", {"form": proof(server, cookie)})
    assert again.status == 303
    refused = post(server, cookie, "/nodes/node-1/uncordon", {"form": proof(server, cookie)})
    assert refused.status == 404
    assert "is not cordoned" in refused.text


@pytest.mark.parametrize("path", ["/nodes/node-1/drain", "/plans/1/abort", "/plans/1/rollback", "/what-if"])
def test_a_forged_form_is_refused(server: RunningServer, operator: str, path: str) -> None:
    own = proof(server, operator)
    other = proof(server, session(server, server.token("operator")))
    assert own
    for wrong in ("", "x", other, own[:-4], own[::-1], "é"):
        refused = post(server, operator, path, {"form": wrong})
        assert refused.status == 403, wrong
        assert "does not belong to your session" in refused.text
    fields = {"form": own}
    for headers in (
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://evil.example"},
    ):
        assert post(server, operator, path, fields, **headers).status == 403
    assert post(server, "", path, fields).headers["location"].startswith("/sign-in")
    assert cordoned(server) == []
    assert server.request("GET", "/api/v1/audit?verb=abort&outcome=done").json["items"] == []


def refused_of(server: RunningServer, token: str) -> list[dict[str, str]]:
    path = f"/api/v1/audit?outcome=refused&limit=100&principal={token.split('_')[1]}"
    found: list[dict[str, str]] = server.request("GET", path).json["items"]
    return found


def test_a_refused_form_is_audited_with_what_it_asked_for(server: RunningServer) -> None:
    token = server.token("operator")
    cookie = session(server, token)
    post(server, cookie, "/plans/1/abort", {"form": "forged"})
    post(server, cookie, "/sign-out", {}, **{"Sec-Fetch-Site": "cross-site"})
    (foreign, forged) = refused_of(server, token)
    assert (forged["verb"], forged["kind"], forged["name"]) == ("abort", "Plan", "1")
    assert "does not belong to your session" in forged["detail"]
    assert f"from the console, session {cookie.split('_')[1]}" in forged["detail"]
    assert (foreign["verb"], foreign["kind"]) == ("sign-out", "Session")
    viewing = server.token("viewer")
    own = session(server, viewing)
    for path in ("/nodes/node-1/drain", "/plans/resume", "/what-if"):
        assert post(server, own, path, {"form": _own_proof(own)}).status == 403
    assert [(entry["verb"], entry["kind"], entry["name"]) for entry in refused_of(server, viewing)] == [
        ("ask", "WhatIf", ""), ("resume", "Plan", "fleet"), ("drain", "Cordon", "node-1"),
    ]  # fmt: skip
    shown = visit(server, session(server, server.admin_token), "/audit?verb=drain").text
    assert '<span class="alarm-text">refused</span>' in shown


@pytest.mark.slow
def test_a_flood_of_refused_forms_leaves_few_entries(server: RunningServer) -> None:
    token = server.token("operator")
    cookie = session(server, token)
    for _ in range(30):
        assert post(server, cookie, "/plans/1/abort", {"form": "forged"}).status == 403
    assert 20 <= len(refused_of(server, token)) < 30  # 20 at once, and one in ten seconds


@pytest.mark.slow
@pytest.mark.parametrize(("scope", "tenant"), [("viewer", ""), ("operator", "shop")])
def test_whoever_may_not_write_sees_no_button_and_is_refused(server: RunningServer, scope: str, tenant: str) -> None:
    cookie = session(server, server.token(scope, tenant=tenant))
    own = _own_proof(cookie)
    for page in ("/plans", "/plans/1", "/nodes/node-1", "/what-if"):
        assert 'name="form"' not in visit(server, cookie, page).text
    for made_up in ("/plans?done=resume-fleet", "/plans/1?done=abort", "/nodes/node-1?done=drain"):
        assert 'class="said"' not in visit(server, cookie, made_up).text
    for path in ("/plans/1/pause", "/plans/1/rollback", "/plans/resume", "/nodes/node-1/drain", "/what-if"):
        refused = post(server, cookie, path, {"form": own, "to": "1"})
        assert refused.status == 403, path
        assert "may not write" in refused.text
    assert cordoned(server) == []


def test_a_form_whose_session_ends_while_it_trickles_in_changes_nothing(server: RunningServer) -> None:
    made = server.request("POST", "/api/v1/tokens", {"scope": "operator"}).json
    cookie = session(server, made["token"])
    body = urlencode({"form": proof(server, cookie)}).encode()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=patience())
    connection.putrequest("POST", "/nodes/node-1/cordon")
    for name, value in {**FORM, "Cookie": cookie, "Content-Length": str(len(body))}.items():
        connection.putheader(name, value)
    connection.endheaders(body[:10])
    time.sleep(2 * SLOW_BODY_SECONDS)
    assert server.request("DELETE", f"/api/v1/tokens/{made['id']}").status == 200
    connection.send(body[10:])
    answer = connection.getresponse()
    assert answer.status == 303
    assert (answer.getheader("location") or "").startswith("/sign-in")
    connection.close()
    assert cordoned(server) == []


def _own_proof(cookie: str) -> str:
    """The token that the session's forms would carry, made from its cookie as the server does it."""
    from app.sessions import FORM_PREFIX, hash_part

    secret = cookie.partition("=")[2].split("_", 2)[2]
    return form_token(Principal("s", Scope.VIEWER, form_key=hash_part(FORM_PREFIX, secret)))


def test_each_page_carries_another_text_of_the_same_proof(server: RunningServer, operator: str) -> None:
    assert proof(server, operator) != proof(server, operator)


def test_sessions_of_a_token_and_tokens_of_a_tenant_share_their_part_of_the_work() -> None:
    assert Principal("session", Scope.VIEWER, opened_by="token").party == Principal("token", Scope.VIEWER).party
    assert Principal("a", Scope.VIEWER, tenant="shop").party == Principal("b", Scope.OPERATOR, tenant="shop").party


def test_only_admins_read_the_audit(server: RunningServer, operator: str) -> None:
    assert visit(server, operator, "/audit").status == 403
    admin = session(server, server.admin_token)
    page = visit(server, admin, "/audit?kind=Session&verb=sign%20in").text
    assert "sign in" in page
    assert "No entry matches" in visit(server, admin, "/audit?name=nosuch").text
    assert visit(server, admin, "/audit?before=nonsense").status == 200


@pytest.mark.slow
def test_a_question_without_a_change_or_about_nothing_known_says_what_is_missing(
    server: RunningServer, operator: str
) -> None:
    for fields, words in (
        ({}, "give at least one change"),
        ({"service": "shop/a"}, "give another rate, latency or risk for shop/a"),
        ({"rate": "x2"}, "name the service"),
        ({"risk": "0.6"}, "allowed are shares of hours above 0 and at most 0.5"),
        ({"service": "shop/a", "rate": "2x"}, "did you mean `x2`"),
        ({"node": "node-9"}, "there is no node node-9"),
        ({"gpu": "v100-16gb"}, "both their type and their number"),
    ):
        reply = post(server, operator, "/what-if", {"form": proof(server, operator), **fields})
        assert reply.status in (400, 404, 422)
        assert words in reply.text

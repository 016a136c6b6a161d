"""Who gets in, with what, for how long; and that what lets in is good for nothing else."""

from __future__ import annotations

from urllib.parse import quote

import psycopg
import pytest

from app.http import cookies
from app.main import assemble
from app.settings import Settings
from app.store.access.sessions import MOST_OF_A_TOKEN
from app.store.database.urls import libpq_url
from tests.app.console.visits import FORM, cookie_of, follow, link, session, sign_in, visit
from tests.support.planned import Planned
from tests.support.server import RunningServer

POLICY = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "


@pytest.fixture
def server(planned: Planned) -> RunningServer:
    return planned.server


@pytest.mark.slow
def test_who_has_no_session_is_sent_to_the_door(server: RunningServer) -> None:
    for cookie in ("", "gpuwright=", "gpuwright=gwc_aaaaaaaaaaaa_" + "a" * 43, "gpuwright=../../etc"):
        reply = visit(server, cookie)
        assert (reply.status, reply.headers["location"]) == (303, "/sign-in")
    assert '<form method="post" action="/sign-in">' in visit(server, "", "/sign-in").text


def test_a_link_into_the_console_survives_signing_in_and_leads_nowhere_else(server: RunningServer) -> None:
    for asked in ("/?service=shop/a", "/services/shop/a", "/plans?state=done&page=2", "/nowhere"):
        sent = visit(server, "", asked)
        door = sent.headers["location"]
        assert (sent.status, door) == (303, f"/sign-in?to={quote(asked, safe='/')}")
        assert f'<form method="post" action="{door}">' in visit(server, "", door).text
        assert sign_in(server, server.admin_token, query=door.removeprefix("/sign-in")).headers["location"] == asked
    for away in ("//evil.example", "/%5Cevil.example", "https://evil.example", "/a%0d%0aX:y", "evil", "/sign-in", ""):
        assert sign_in(server, server.admin_token, query=f"?to={away}").headers["location"] == "/"


def test_a_session_that_has_ended_is_reported_at_the_sign_in(server: RunningServer) -> None:
    token = server.token("viewer")
    cookie = session(server, token)
    assert server.request("DELETE", f"/api/v1/tokens/{token.split('_')[1]}").status == 200
    door = visit(server, cookie, "/sign-in")
    assert "Your session has ended" in door.text
    assert cookie_of(door) == "gpuwright="
    assert "Your session has ended" not in visit(server, "", "/sign-in").text


def test_a_token_opens_a_session_for_reading_in_a_cookie_that_no_script_and_no_other_site_sees(
    server: RunningServer,
) -> None:
    reply = sign_in(server, server.admin_token)
    assert (reply.status, reply.headers["location"]) == (303, "/")
    attributes = reply.headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"} <= set(attributes)
    assert server.admin_token.split("_", 2)[2] not in reply.headers["set-cookie"]
    page = visit(server, cookie_of(reply))
    assert page.status == 200
    assert "shop/a" in page.text


def test_over_tls_the_cookie_is_for_tls_and_this_host_alone(server: RunningServer) -> None:
    reply = sign_in(server, server.admin_token, **{"X-Forwarded-Proto": "https"})
    assert reply.headers["set-cookie"].startswith("__Host-gpuwright=gwc_")
    assert reply.headers["set-cookie"].endswith("; Secure")
    planted = {"scheme": "https", "headers": [(b"cookie", b"gpuwright=planted; __Host-gpuwright=own")]}
    assert cookies.session_of(planted) == "own"
    assert cookies.session_of({"scheme": "https", "headers": [(b"cookie", b"gpuwright=planted")]}) is None


def test_every_page_says_what_it_may_load_and_is_kept_nowhere(server: RunningServer) -> None:
    cookie = session(server, server.admin_token)
    for reply in (visit(server, cookie), visit(server, "", "/sign-in"), sign_in(server, "nonsense")):
        assert reply.headers["content-security-policy"].startswith(POLICY)
        assert "unsafe" not in reply.headers["content-security-policy"]
        assert reply.headers["cache-control"] == "no-store"
        assert reply.headers["referrer-policy"] == "same-origin"
        assert reply.headers["x-frame-options"] == "DENY"
        assert reply.headers["x-content-type-options"] == "nosniff"
        for inline in ("<style", " style=", "<script>", " onclick", " onload"):
            assert inline not in reply.text
    assert visit(server, "", "/console/console.css").headers["cache-control"].endswith("immutable")
    assert visit(server, "", "/console/../main.py").status in (401, 404)
    assert visit(server, "", "/console/nothing.css").status == 404


def api() -> list[tuple[str, str]]:
    """Every route of the API that wants a token."""
    document = assemble(Settings(database_url="postgresql://nobody@127.0.0.1/none")).openapi()
    return [
        (method.upper(), path.replace("{", "").replace("}", ""))
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if operation.get("security") != []
    ]


@pytest.mark.slow
def test_the_cookie_reads_the_page_and_is_nothing_to_the_api(server: RunningServer) -> None:
    cookie = session(server, server.admin_token)
    secret = cookie.partition("=")[2]
    for at, (method, path) in enumerate(api()):
        reply = server.request(method, path, token="", headers={"Cookie": cookie}, peer=f"127.0.3.{at % 8 + 1}")
        assert reply.status == 401, (method, path)
    for text in (secret, secret.replace("gwc_", "gw_")):
        assert server.request("GET", "/api/v1/services", token=text, peer="127.0.3.9").status == 401
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert visit(server, cookie, "/", method).status == 405


def test_a_form_of_another_site_signs_nobody_in_or_out(server: RunningServer) -> None:
    elsewhere = {"Sec-Fetch-Site": "cross-site"}
    assert sign_in(server, server.admin_token, **elsewhere).status == 403
    cookie = session(server, server.admin_token)
    out = server.request("POST", "/sign-out", token="", headers={"Cookie": cookie, **elsewhere})
    assert out.status == 403
    assert visit(server, cookie).status == 200


def test_a_form_with_too_many_fields_is_refused(server: RunningServer) -> None:
    for path in ("/sign-in", "/time-zone"):
        body = b"zone=UTC&" * 6
        cookie = session(server, server.token("viewer"))
        refused = server.request("POST", path, body, token="", headers={**FORM, "Cookie": cookie})
        assert refused.status == 400, path


def test_a_session_ends_when_it_is_signed_out_and_when_its_token_is_revoked(server: RunningServer) -> None:
    token = server.token("viewer")
    first, second = session(server, token), session(server, token)
    out = visit(server, first, "/sign-out", "POST")
    assert (out.status, cookie_of(out)) == (303, "gpuwright=")
    assert visit(server, first).status == 303
    assert visit(server, second).status == 200
    assert server.request("DELETE", f"/api/v1/tokens/{token.split('_')[1]}").status == 200
    assert visit(server, second).status == 303
    assert sign_in(server, token).status == 401


def test_a_session_is_listed_among_tokens_and_can_be_revoked_by_itself(server: RunningServer) -> None:
    token = server.token("operator", tenant="shop")
    cookie = session(server, token)
    own = cookie.split("_")[1]
    listed = {one["id"]: one for one in server.request("GET", "/api/v1/tokens?limit=500").json["items"]}
    assert listed[own]["scope"] == "operator"
    assert listed[own]["tenant"] == "shop"
    assert listed[own]["createdBy"] == token.split("_")[1]
    assert listed[own]["expiresAt"]
    assert server.request("DELETE", f"/api/v1/tokens/{own}").status == 200
    assert visit(server, cookie).status == 303


@pytest.mark.slow
def test_case_30_one_more_session_of_a_token_than_it_may_have_ends_the_oldest(server: RunningServer) -> None:
    token, other = server.token("viewer"), session(server, server.token("viewer"))
    opened = [session(server, token) for _ in range(MOST_OF_A_TOKEN + 2)]
    statuses = [visit(server, cookie).status for cookie in opened]
    assert statuses == [303, 303] + [200] * MOST_OF_A_TOKEN
    assert visit(server, other).status == 200


def test_a_plain_form_of_another_site_is_known_by_its_origin(server: RunningServer) -> None:
    own = f"http://127.0.0.1:{server.port}"
    for origin in ("http://evil.example", "null", f"http://127.0.0.1:{server.port}.evil.example", ""):
        assert sign_in(server, server.admin_token, Origin=origin).status == 403
    assert sign_in(server, server.admin_token, Origin=own).status == 303
    forwarded = {"Origin": "https://fleet.example", "X-Forwarded-Host": "fleet.example"}
    assert sign_in(server, server.admin_token, **forwarded).status == 303


def test_what_speaks_for_a_machine_reads_no_page(server: RunningServer) -> None:
    for token in (server.token("node", node="node-0"), server.token("gateway", gateway="edge")):
        reply = sign_in(server, token)
        assert reply.status == 403
        assert "may not read the console" in reply.text


@pytest.mark.slow
def test_guesses_are_slowed_down_by_address_as_those_at_tokens_are(server: RunningServer) -> None:
    peer = "127.0.3.77"
    tried = [sign_in(server, f"gw_{'a' * 12}_{'b' * 43}", peer=peer).status for _ in range(90)]
    assert set(tried) == {401, 429}
    slowed = sign_in(server, server.admin_token, peer=peer)
    assert slowed.status == 429
    assert int(slowed.headers["retry-after"]) >= 1
    assert slowed.headers["content-type"].startswith("text/html")
    assert sign_in(server, server.admin_token, peer="127.0.3.78").status == 303


def test_a_link_signs_in_once(server: RunningServer) -> None:
    secret = link(server, server.admin_token)
    first = follow(server, secret)
    assert (first.status, first.headers["location"]) == (303, "/")
    assert visit(server, cookie_of(first)).status == 200
    again = follow(server, secret)
    assert again.status == 401
    assert "set-cookie" not in again.headers
    assert "already used" in again.text
    assert (
        server.request("GET", "/api/v1/services", token=secret.replace("gwl_", "gw_"), peer="127.0.3.5").status == 401
    )


def test_opening_a_link_signs_nobody_in_and_another_sites_page_cannot_press_its_button(server: RunningServer) -> None:
    """Otherwise a page could sign a browser in as its own author, who would then see what is done there."""
    secret = link(server, server.admin_token)
    for _ in range(2):
        page = visit(server, "", f"/sign-in?link={secret}")
        assert page.status == 200
        assert "set-cookie" not in page.headers
        assert f'<input type="hidden" name="link" value="{secret}">' in page.text
    assert follow(server, secret, **{"Sec-Fetch-Site": "cross-site"}).status == 403
    assert follow(server, secret, Origin="http://evil.example").status == 403
    assert follow(server, secret).status == 303
    quoted = visit(server, "", "/sign-in?link=%22%3E%3Cscript%3E")
    assert "&#34;&gt;&lt;script&gt;" in quoted.text


def test_a_link_is_good_for_a_minute_by_the_databases_clock(server: RunningServer) -> None:
    secret = link(server, server.admin_token)
    own = secret.split("_")[1]
    with psycopg.connect(libpq_url(server.database_url), autocommit=True) as connection:
        seconds = connection.execute(
            "SELECT extract(epoch FROM expires_at - created_at) FROM token WHERE id = %s", [own]
        ).fetchone()
        assert seconds == (60,)
        connection.execute("UPDATE token SET expires_at = now() WHERE id = %s", [own])
    assert follow(server, secret).status == 401


@pytest.mark.slow
def test_a_link_ends_with_the_token_that_it_stands_for(server: RunningServer) -> None:
    token = server.token("viewer")
    secret = link(server, token)
    cookie = cookie_of(follow(server, link(server, token)))
    assert visit(server, cookie).status == 200
    assert server.request("DELETE", f"/api/v1/tokens/{token.split('_')[1]}").status == 200
    assert follow(server, secret).status == 401
    assert visit(server, cookie).status == 303
    assert link(server, token) == ""


def test_signing_in_is_audited_and_secrets_stay_out_of_the_log(server: RunningServer) -> None:
    secret = link(server, server.admin_token)
    cookie = cookie_of(follow(server, secret))
    told = server.request("GET", "/api/v1/audit").json["items"]
    assert any(one["kind"] == "Session" and one["principal"] == cookie.split("_")[1] for one in told)
    log = server.log_path.read_text()
    for text in (secret, cookie.partition("=")[2], server.admin_token):
        assert text.split("_", 2)[2] not in log

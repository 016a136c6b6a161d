"""How tests go through the door: by form, by link, with the cookie that they were given."""

from __future__ import annotations

from urllib.parse import urlencode

from app import sessions, tokens
from app.store.database.database import Database
from tests.support.server import Reply, RunningServer

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def sign_in(server: RunningServer, token: str, *, peer: str = "127.0.0.1", query: str = "", **headers: str) -> Reply:
    body = urlencode({"token": token}).encode()
    return server.request("POST", f"/sign-in{query}", body, token="", headers={**FORM, **headers}, peer=peer)


def follow(server: RunningServer, secret: str, **headers: str) -> Reply:
    """Presses the button on the page of a link."""
    body = urlencode({"link": secret}).encode()
    return server.request("POST", "/sign-in", body, token="", headers={**FORM, **headers})


def cookie_of(reply: Reply) -> str:
    """`name=value` of what the answer sets."""
    return reply.headers["set-cookie"].partition(";")[0]


def session(server: RunningServer, token: str) -> str:
    reply = sign_in(server, token)
    assert reply.status == 303, reply.text
    return cookie_of(reply)


def visit(server: RunningServer, cookie: str, path: str = "/", method: str = "GET") -> Reply:
    return server.request(method, path, token="", headers={"Cookie": cookie, "Accept": "text/html"})


def link(server: RunningServer, token: str) -> str:
    """A one-time link for the holder of a token, as `up` makes it."""
    parsed = tokens.parse(token)
    assert parsed is not None
    database = Database(server.database_url, pool_size=1)
    try:
        return sessions.link_for(database, parsed[0])
    finally:
        database.close()

"""Answers with a page: the frame around its content, the security policy, compression."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from datetime import datetime
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from fastapi import Request, Response

from app.access import AccessVerb, Noun, Principal, Reach, may, require
from app.console.frame import PageFrame, zone_of
from app.console.links import safe_address, view_link
from app.console.rendering import render
from app.http import cookies
from app.http.answers import PAGE_HEADERS

NEEDED = {"/audit": (Noun.AUDIT, AccessVerb.READ), "/what-if": (Noun.WHAT_IF, AccessVerb.WRITE)}
NOTHING: Mapping[str, str] = {}
SMALL = 1400  # bytes: a single packet, which compression makes no faster


def shown_tenant(who: Principal) -> str:
    """Returns the tenant whose part of the pages the caller sees; empty where it sees everything."""
    return who.tenant if require(who, Noun.OVERVIEW, AccessVerb.READ) is Reach.OWN else ""


def zone_of_reader(request: Request) -> ZoneInfo:
    """Returns the time zone of the address, else the one that the reader has chosen, else UTC."""
    return zone_of(request.query_params.get("zone") or cookies.zone_of(request.scope) or "UTC")


def frame_of(request: Request, who: Principal, at: datetime, pinned: Mapping[str, str] = NOTHING) -> PageFrame:
    """Returns the frame of the page that is asked for; `pinned` are values that the page has chosen for itself."""
    path, given = request.url.path, dict(request.query_params)
    zone = zone_of_reader(request).key
    query = urlencode({name: value for name, value in given.items() if name != "zone"}, safe="/")
    back = safe_address(f"{path}{'?' if query else ''}{query}")
    refused = frozenset(page for page, (noun, verb) in NEEDED.items() if not may(who, noun, verb))
    view = view_link(path, {**given, **pinned}, zone)
    return PageFrame(at, shown_tenant(who), zone, path, back, view, refused)


def show(
    request: Request, who: Principal, template: str, at: datetime, *, status: int = 200, cookie: str = "",
    pinned: Mapping[str, str] = NOTHING, **values: object,
) -> Response:  # fmt: skip
    """Answers with a page that extends `layout.html`; `at` is the moment of its data."""
    return html_answer(request, render(template, frame=frame_of(request, who, at, pinned), **values), status, cookie)


def html_answer(
    request: Request, html: str, status: int = 200, cookie: str = "", more: Mapping[str, str] = NOTHING
) -> Response:
    """Returns HTML under the policy of every page. Proofs in forms are masked each time: compression leaks nothing."""
    content = html.encode()
    headers = {**more, **PAGE_HEADERS, "Vary": "Accept-Encoding, Cookie"}
    if cookie:
        headers["Set-Cookie"] = cookie
    if len(content) > SMALL and "gzip" in request.headers.get("accept-encoding", ""):
        content = gzip.compress(content, 3)
        headers["Content-Encoding"] = "gzip"
    return Response(content, status, headers, "text/html; charset=utf-8")


def redirect(path: str, cookie: str = "") -> Response:
    """Leads the browser to another page."""
    headers = {**PAGE_HEADERS, "Location": path} | ({"Set-Cookie": cookie} if cookie else {})
    return Response(status_code=303, headers=headers)

"""Serves the page to visitors with a session, and asks everybody else for a token."""

from __future__ import annotations

import gzip
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import APIRouter, Depends, Path, Request, Response
from sqlalchemy import Connection

from app.access import Principal
from app.api.requests import Ctx, body
from app.console import view
from app.console.data import ConsoleData, read_data, read_money, shown_tenant
from app.console.money import Money
from app.console.page_request import read_page_request
from app.http import cookies
from app.http.answers import PAGE_HEADERS
from app.problem import HttpProblem
from app.sessions import SESSION_SECONDS, Opened
from app.store.world import audit
from app.world.write import Actor

router = APIRouter(include_in_schema=False)

FOREVER = "public, max-age=31536000, immutable"
SMALL = 1400  # bytes: a single packet, which compression makes no faster
LONGEST_TOKEN = 100


async def _visitor(request: Request) -> Principal | None:
    who: Principal | None = request.scope["state"]["principal"]
    return who


Visitor = Annotated[Principal | None, Depends(_visitor)]


@router.get("/")
def console(request: Request, ctx: Ctx, who: Visitor) -> Response:
    wanted = read_page_request(request.query_params)
    if who is None:
        return _to(f"/sign-in{wanted.url()[1:]}")
    counted = ctx.windows.read(ctx.database, shown_tenant(who))

    def read(connection: Connection) -> tuple[ConsoleData, Money]:
        found = read_data(connection, who, wanted, counted)
        return found, read_money(connection, who, found.at, ctx.settings.currency)

    return page(request, view.page(*ctx.database.read(read), wanted))


@router.get("/sign-in")
def door(request: Request, ctx: Ctx, who: Visitor, link: str = "") -> Response:
    """Shows the form; with a link of `gpuwright up`, opens the session of that link."""
    if not link:
        ended = cookies.session_of(request.scope) is not None and who is None
        refused = "Your session has ended; sign in again." if ended else ""
        cookie = cookies.drop(request.scope) if ended else ""
        return page(request, _door(request, refused), cookie=cookie)
    try:
        opened = ctx.sessions.redeem(link)
    except HttpProblem as problem:
        return page(request, _door(request, problem.detail), problem.status)
    _audit(request, ctx, opened, "sign in by link")
    # Not a redirect: the browser would count it as navigation from the page with the link, and withhold the strict
    # cookie.
    return page(request, view.render("signed_in.html"), cookie=_cookie(request, opened))


@router.post("/sign-in")
def sign_in(request: Request, ctx: Ctx) -> Response:
    _refuse_foreign(request)
    fields = parse_qs(body(request).decode("latin-1"), max_num_fields=5)
    token = fields.get("token", [""])[0].strip()
    try:
        if len(token) > LONGEST_TOKEN or not token.isascii():
            raise HttpProblem("unauthorized", "this is not a gpuwright token")
        opened = ctx.sessions.open(token)
    except HttpProblem as problem:
        if problem.status not in (401, 403):
            raise
        return page(request, _door(request, problem.detail), problem.status)
    _audit(request, ctx, opened, "sign in")
    return _to(read_page_request(request.query_params).url(), _cookie(request, opened))


@router.post("/sign-out")
def sign_out(request: Request, ctx: Ctx, who: Visitor) -> Response:
    _refuse_foreign(request)
    if who is not None:
        ctx.sessions.close(who)
    return _to("/sign-in", cookies.drop(request.scope))


@router.get("/favicon.ico")
async def icon() -> Response:
    """Answers the request that browsers make on every site."""
    return await static("icon.svg")


@router.get("/console/{name}")
async def static(name: Annotated[str, Path(max_length=40)]) -> Response:
    try:
        content, media = view.static(name)
    except KeyError:
        raise HttpProblem("not-found", "there is no such file") from None
    return Response(content, media_type=media, headers={"Cache-Control": FOREVER})


def page(request: Request, html: str, status: int = 200, cookie: str = "") -> Response:
    """Returns HTML under the policy of every page. It holds no secret, so compression leaks nothing."""
    content = html.encode()
    headers = {**PAGE_HEADERS, "Vary": "Accept-Encoding, Cookie"}
    if cookie:
        headers["Set-Cookie"] = cookie
    if len(content) > SMALL and "gzip" in request.headers.get("accept-encoding", ""):
        content = gzip.compress(content, 3)
        headers["Content-Encoding"] = "gzip"
    return Response(content, status, headers, "text/html; charset=utf-8")


def _door(request: Request, refused: str) -> str:
    """Returns the form, which leads back to the page that was asked for."""
    asked = read_page_request(request.query_params).url()
    return view.render("sign_in.html", refused=refused, action=f"/sign-in{asked[1:]}")


def _to(path: str, cookie: str = "") -> Response:
    headers = {**PAGE_HEADERS, "Location": path} | ({"Set-Cookie": cookie} if cookie else {})
    return Response(status_code=303, headers=headers)


def _cookie(request: Request, opened: Opened) -> str:
    return cookies.keep(request.scope, opened.cookie, SESSION_SECONDS)


def _refuse_foreign(request: Request) -> None:
    """Refuses forms of other sites, so that they cannot sign anybody in or out.

    Over plain HTTP browsers send no Sec-Fetch-Site, but each sends the origin of a form. No form can set the Host that
    the browser asked for, nor what a proxy in front of us reports of it.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        is_own = site in ("same-origin", "none")
    else:
        hosts = (request.headers.get("host"), request.headers.get("x-forwarded-host"))
        is_own = origin is None or origin.partition("://")[2] in hosts
    if not is_own:
        raise HttpProblem("forbidden", "this form was sent from another site")


def _audit(request: Request, ctx: Ctx, opened: Opened, verb: str) -> None:
    who = Actor(opened.principal, request.scope["state"]["request_id"])
    entry = who.entry(verb, "Session", name=opened.principal.id)
    ctx.database.write(lambda connection: audit.record(connection, [entry]))

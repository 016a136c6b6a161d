"""The way in and out: the sign-in form, links that sign in, signing out, the time zone, static files."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qs, urlencode

from fastapi import APIRouter, Path, Query, Request, Response

from app.api.requests import Ctx, body
from app.console.frame import known_zone
from app.console.links import SIGN_IN, safe_address, sign_in_link
from app.console.page_answer import html_answer, redirect
from app.console.provider_door import BEGIN
from app.console.rendering import render, static
from app.console.visitor import Viewer, Visitor, refuse_foreign
from app.context import Context
from app.http import cookies
from app.problem import HttpProblem
from app.sessions import SESSION_SECONDS, Opened
from app.store.world import audit
from app.world.write import Actor

router = APIRouter(include_in_schema=False)

FOREVER = "public, max-age=31536000, immutable"
LONGEST_TOKEN = 100


@router.get(SIGN_IN)
def door(
    request: Request, ctx: Ctx, who: Visitor, link: Annotated[str, Query(max_length=LONGEST_TOKEN)] = ""
) -> Response:
    """Shows the form. A link of `gpuwright up` has a button: another site can open the link, but not press that."""
    ended = cookies.session_of(request.scope) is not None and who is None
    refused = "Your session has ended; sign in again." if ended and not link else ""
    cookie = cookies.drop(request.scope) if ended else ""
    return html_answer(request, _render_form(request, ctx, refused, link), cookie=cookie)


@router.post(SIGN_IN)
def sign_in(request: Request, ctx: Ctx) -> Response:
    refuse_foreign(request)
    token, link = _field(request, "token"), _field(request, "link")
    try:
        if link:
            opened = ctx.sessions.redeem(link)
        elif len(token) > LONGEST_TOKEN or not token.isascii():
            raise HttpProblem("unauthorized", "this is not a gpuwright token")
        else:
            opened = ctx.sessions.open(token)
    except HttpProblem as problem:
        if problem.status not in (401, 403):
            raise
        return html_answer(request, _render_form(request, ctx, problem.detail), problem.status)
    _audit(request, ctx, opened, "sign in by link" if link else "sign in")
    return redirect(_back(request), cookies.keep(request.scope, opened.cookie, SESSION_SECONDS))


@router.post("/sign-out")
def sign_out(request: Request, ctx: Ctx, who: Visitor) -> Response:
    refuse_foreign(request)
    if who is not None:
        ctx.sessions.close(who)
    return redirect(SIGN_IN, cookies.drop(request.scope))


@router.post("/time-zone")
def choose_zone(request: Request, _who: Viewer) -> Response:
    """Keeps the chosen time zone in a cookie, and leads back."""
    refuse_foreign(request)
    zone = known_zone(_field(request, "zone"))
    return redirect(safe_address(_field(request, "to")), cookies.keep_zone(request.scope, zone))


@router.get("/favicon.ico")
async def icon() -> Response:
    """Answers the request that browsers make on every site."""
    return await static_file("icon.svg")


@router.get("/console/{name}")
async def static_file(name: Annotated[str, Path(max_length=40)]) -> Response:
    try:
        content, media = static(name)
    except KeyError:
        raise HttpProblem("not-found", "there is no such file") from None
    return Response(content, media_type=media, headers={"Cache-Control": FOREVER})


def _field(request: Request, name: str) -> str:
    try:
        fields = parse_qs(body(request).decode("latin-1"), max_num_fields=5)
    except ValueError:
        raise HttpProblem("bad-request", "The form could not be read.") from None
    return fields.get(name, [""])[0].strip()


def _back(request: Request) -> str:
    """Returns the page that was asked for before signing in."""
    return safe_address(request.query_params.get("to", "/"))


def _render_form(request: Request, ctx: Context, refused: str, link: str = "") -> str:
    """Returns the form, which leads back to the page that was asked for."""
    back = _back(request)
    provider = ctx.provider.name if ctx.provider else ""
    values = {"provider": provider, "begin": f"{BEGIN}?{urlencode({'to': back}, safe='/')}"}
    return render("sign_in.html", refused=refused, action=sign_in_link(back), link=link, **values)


def _audit(request: Request, ctx: Ctx, opened: Opened, verb: str) -> None:
    who = Actor(opened.principal, request.scope["state"]["request_id"])
    entry = who.entry(verb, "Session", name=opened.principal.id)
    ctx.database.write(lambda connection: audit.record(connection, [entry]))

"""The way in by the people's provider: a browser goes there with a secret of its own, and comes back with a code."""

from __future__ import annotations

import hmac
import secrets
from typing import Annotated
from urllib.parse import quote, unquote

from fastapi import APIRouter, Query, Request, Response

from app.api.requests import Ctx
from app.console.links import SIGN_IN, safe_address, sign_in_link
from app.console.page_answer import html_answer, redirect
from app.console.rendering import render
from app.context import Context
from app.http import cookies
from app.http.lanes import RETURN
from app.people.provider import Provider
from app.people.refusals import refuse
from app.people.signing_in import sign_in
from app.problem import HttpProblem
from app.sessions import SESSION_SECONDS

router = APIRouter(include_in_schema=False)

BEGIN = f"{SIGN_IN}/provider"
Word = Annotated[str, Query(max_length=4096)]


@router.get(BEGIN)
def begin(request: Request, ctx: Ctx, to: Annotated[str, Query(max_length=1000)] = "/") -> Response:
    """Sends the browser to the provider. What it must bring back is kept in its own cookie, and nowhere here."""
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return redirect(sign_in_link(safe_address(to)))  # another site asks; who wants to sign in presses the button
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    with refuse():
        address = _provider(ctx).begin_address(state, nonce, verifier)
    started = ".".join((state, nonce, verifier, quote(safe_address(to), safe="")))
    return redirect(address, cookies.keep_started(request.scope, started))


@router.get(RETURN)
def come_back(
    request: Request, ctx: Ctx, code: Word = "", state: Word = "", error: Word = "", iss: Word = ""
) -> Response:
    """Opens a session for the person whom the provider names."""
    provider = _provider(ctx)
    begun = cookies.started_of(request.scope).split(".", 3)
    if len(begun) != 4 or not all(begun) or not hmac.compare_digest(begun[0].encode(), state.encode()):
        raise HttpProblem("unauthorized", "this browser did not begin this sign-in, or began it over ten minutes ago")
    if iss and iss != ctx.settings.oidc_issuer:
        raise HttpProblem("unauthorized", "this answer comes from another provider")
    if error or not code:
        raise HttpProblem("unauthorized", f"the provider did not sign you in ({_name_error(error)})")
    _, nonce, verifier, back = begun
    with refuse():
        person = provider.redeem(code, verifier, nonce)
    given = sign_in(ctx, person, request.scope["state"]["request_id"], "console")
    # The token's secret ends here: the session alone is known outside.
    cookie = cookies.keep(request.scope, ctx.sessions.open(given.text).cookie, SESSION_SECONDS)
    return _lead_on(request, safe_address(unquote(back)), cookie)


def _lead_on(request: Request, to: str, cookie: str) -> Response:
    """Answers with a page that leads on: the session's cookie is not sent along with a redirect from elsewhere."""
    answer = html_answer(request, render("signed_in.html", to=to), cookie=cookie)
    answer.headers.append("Set-Cookie", cookies.keep_started(request.scope, "", 0))
    return answer


def _provider(ctx: Context) -> Provider:
    if ctx.provider is None:
        raise HttpProblem("not-found", "people sign in here with a token: this server knows no provider")
    return ctx.provider


def _name_error(error: str) -> str:
    return error[:60] if error.replace("_", "").isalnum() else "it gave no code"

"""Refusals as pages; without a session the sign-in form comes first. Refused forms are audited."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from fastapi import FastAPI, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.access import Noun, Principal
from app.api.agents import overreach
from app.console import links
from app.console.forms import actor_of
from app.console.page_answer import frame_of, html_answer, redirect
from app.console.rendering import render
from app.console.visitor import NotSignedIn
from app.http import errors
from app.http.lanes import lane_of_scope
from app.problem import HttpProblem

# The noun that the audit names, by the first part of a path; the other parts give verb and name.
KINDS = {"plans": Noun.PLAN, "nodes": Noun.CORDON, "what-if": Noun.WHAT_IF, "audit": Noun.AUDIT}
LONGEST_NAME = 63
_VERB = re.compile(r"[a-z-]{1,40}")


def install(app: FastAPI) -> None:
    """Lets `app` answer refusals of the console's paths with pages of the console."""
    no_route = app.router.default

    async def unknown_path(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and lane_of_scope(scope).page:
            if scope["method"] == "GET" and scope["state"]["principal"] is None:
                raise NotSignedIn
            raise HttpProblem("not-found", f"There is no page at {scope['path'][: links.LONGEST]}.")
        await no_route(scope, receive, send)

    app.router.default = unknown_path
    app.add_exception_handler(NotSignedIn, _redirect_to_sign_in)
    for kind in errors.KINDS:
        app.add_exception_handler(kind, _refuse)


def unknown_name(what: str) -> HttpProblem:
    """Returns the refusal of an unknown name, which is not repeated: it may be that of another tenant's object."""
    return HttpProblem(
        "not-found", f"There is no {what} of the name in this address: it was deleted, or is not yours to see."
    )


def refusal_page(problem: HttpProblem, scope: Scope) -> str:
    """Returns the page of a refusal; for a visitor with a session the navigation is around it."""
    request, who = Request(scope), scope["state"].get("principal")
    values = {"problem": problem, "request_id": scope["state"].get("request_id", "")}
    if who is None:
        return render("refusal_alone.html", **values)
    frame = frame_of(request, who, datetime.now(UTC))
    return render("refusal.html", frame=frame, is_repeatable=request.method == "GET", **values)


async def _redirect_to_sign_in(request: Request, _error: Exception) -> Response:
    query = request.url.query
    back = f"{request.url.path}{'?' if query else ''}{query}" if request.method == "GET" else "/"
    return redirect(links.sign_in_link(links.safe_address(back)))


async def _refuse(request: Request, error: Exception) -> Response:
    if not lane_of_scope(request.scope).page:
        return await errors.answer(request, error)
    problem = errors.problem_of_request(request, error)
    who: Principal | None = request.scope["state"].get("principal")
    if who is not None and request.method == "POST" and problem.status == 403:
        await _audit(request, who, problem)
    return html_answer(request, refusal_page(problem, request.scope), problem.status, more=problem.headers)


async def _audit(request: Request, who: Principal, problem: HttpProblem) -> None:
    """Records that a form was refused: it was forged, or its token may not do that."""
    first, *rest = request.url.path.strip("/").split("/")
    asked = rest[-1] if rest else {"what-if": "ask"}.get(first, first)
    verb = asked if _VERB.fullmatch(asked) else "change"  # its sender chose the address
    name = rest[0] if len(rest) > 1 else "fleet" if rest else ""
    kind = str(KINDS.get(first, "Session"))
    entry = actor_of(request, who).entry(verb, kind, name=name[:LONGEST_NAME], outcome="refused", detail=problem.detail)
    await overreach.record_refusal(request, entry)

"""Refusals as pages: unknown paths and names say so with status 404; without a session the sign-in form comes first."""

from __future__ import annotations

from datetime import UTC, datetime

from fastapi import FastAPI, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.console import links
from app.console.page_answer import show, to_page
from app.console.visitor import NotSignedIn
from app.http import errors
from app.http.lanes import lane_of_scope
from app.problem import HttpProblem

FRAMED = (403, 404)  # refusals that keep the navigation around them


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
    app.add_exception_handler(NotSignedIn, _to_sign_in)
    app.add_exception_handler(HttpProblem, _refuse)


def unknown_name(what: str) -> HttpProblem:
    """Returns the refusal of an unknown name, which is not repeated: it may be that of another tenant's object."""
    return HttpProblem(
        "not-found", f"There is no {what} of the name in this address: it was deleted, or is not yours to see."
    )


async def _to_sign_in(request: Request, _error: Exception) -> Response:
    query = request.url.query
    back = f"{request.url.path}{'?' if query else ''}{query}" if request.method == "GET" else "/"
    return to_page(links.sign_in_link(links.safe_address(back)))


async def _refuse(request: Request, error: Exception) -> Response:
    who = request.scope["state"].get("principal")
    problem = errors.problem_of(error)
    is_page = lane_of_scope(request.scope).page
    if not is_page or who is None or problem.status not in FRAMED:
        return await errors.answer(request, error)
    return show(request, who, "refusal.html", datetime.now(UTC), status=problem.status, problem=problem)

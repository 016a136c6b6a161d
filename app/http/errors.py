"""Turns every exception of a route into a problem: refusals in words, internal errors without details."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import psycopg
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic_core import ErrorDetails
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from app.http import answers
from app.http.buckets import Buckets
from app.http.redact import redact
from app.manifests.faults import ManifestFault
from app.manifests.model import JSON
from app.problem import HttpProblem
from app.store.database.database import OutcomeUnknown, Unavailable

log = logging.getLogger(__name__)

RETRY_SECONDS = "2"
AWAY_LINES = Buckets(2.0, 10.0)
LONGEST_VALUE = 80
METHODS = ("GET", "HEAD", "PUT", "PATCH", "POST", "DELETE", "OPTIONS")

# Starlette raises these itself; a route of ours raises Problem.
_SLUGS = {
    400: "bad-request",
    401: "unauthorized",
    403: "forbidden",
    404: "not-found",
    405: "method-not-allowed",
    408: "request-timeout",
    413: "too-large",
    415: "unsupported-media-type",
    422: "invalid",
    429: "rate-limited",
    503: "unavailable",
}


KINDS = (
    HttpProblem, HTTPException, RequestValidationError, Unavailable, PoolTimeout, DBAPIError, psycopg.Error, Exception,
)  # fmt: skip


def install(app: FastAPI) -> None:
    """Makes `app` answer every error with problem+json."""
    app.router.redirect_slashes = False  # the redirect would repeat the Host header back
    for kind in KINDS:
        app.add_exception_handler(kind, answer)


async def answer(request: Request, error: Exception) -> Response:
    """Answers an exception of a route with its problem."""
    problem = problem_of_request(request, error)
    body = answers.encode_problem(problem, request.scope)
    response = Response(body, problem.status)
    response.raw_headers = answers.headers_of(problem, body, request.scope)
    return response


def problem_of_request(request: Request, error: Exception) -> HttpProblem:
    """Returns the problem of a request that has reached the routes: they know which methods its path allows."""
    problem = problem_of(error)
    if problem.status == 405:
        problem.headers["Allow"] = ", ".join(_list_allowed(request))
    return problem


def problem_of(error: Exception) -> HttpProblem:
    """Returns the problem that the caller gets; the details of an internal error go to the log."""
    match error:
        case HttpProblem():
            return error
        case RequestValidationError():
            return HttpProblem(
                "invalid", "the request does not match the schema of this route", faults=_faults(error.errors())
            )
        case HTTPException():
            return _translate(error)
        case Unavailable() | PoolTimeout() | OperationalError() | InterfaceError() | psycopg.OperationalError():
            _away(error)
            if isinstance(error, OutcomeUnknown):
                return unavailable(redact(str(error)))
            # In our own words if we have them: a full disk needs another remedy than a lost server.
            why = redact(str(error)) if isinstance(error, Unavailable) else "the database cannot be reached right now"
            return unavailable(f"{why}; as far as the server knows, nothing has changed")
        case DBAPIError(connection_invalidated=True):
            _away(error)
            return unavailable("the connection to the database was lost")
        case _:
            log.error("request_failed", exc_info=error)
            return HttpProblem(
                "internal", "the server failed on this request; its log holds the details under this requestId"
            )


def _away(error: Exception) -> None:
    # Every request of a fleet meets it; a few lines a second in the log are enough.
    if not AWAY_LINES.take("", time.monotonic()):
        log.warning("database_unavailable", extra={"reason": str(error)})


def unavailable(detail: str) -> HttpProblem:
    return HttpProblem("unavailable", detail, headers={"Retry-After": RETRY_SECONDS})


def _translate(error: HTTPException) -> HttpProblem:
    slug = _SLUGS.get(error.status_code, "bad-request" if error.status_code < 500 else "internal")
    details = {
        "not-found": "this path does not exist",
        "method-not-allowed": "this path does not allow that method; see the Allow header",
        "bad-request": "the server cannot parse the request",
    }
    return HttpProblem(slug, details.get(slug, redact(str(error.detail))), headers=error.headers)


def _list_allowed(request: Request) -> list[str]:
    """Returns every method that some route takes at this path; Starlette names those of the first route only."""
    routes = request.app.router.routes
    return [
        method
        for method in METHODS
        if any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in routes)
    ]


def _faults(errors: Sequence[ErrorDetails]) -> list[ManifestFault]:
    found = []
    for error in errors:
        where = [str(part) for part in error.get("loc", ())]
        place, field = (where[0], ".".join(where[1:])) if where else ("request", "")
        message = redact(str(error.get("msg", "is invalid")))
        found.append(
            ManifestFault(document=place, field=field, message=message, value=_shown(error.get("input"), field))
        )
    return found


def _shown(value: object, field: str) -> JSON:
    """Returns the offending value if it is short and no secret."""
    if any(word in field.lower() for word in ("token", "secret", "password")):
        return None
    if isinstance(value, bool | int | float):
        return value if -1e15 < value < 1e15 else None
    return redact(value[:LONGEST_VALUE]) if isinstance(value, str) else None

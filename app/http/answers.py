"""Turns a refusal into a response, as a problem for programs or as a page for people."""

from __future__ import annotations

import json
from collections.abc import Callable

from starlette.types import Scope

from app.http.lanes import lane_of_scope
from app.http.redact import redact
from app.problem import HttpProblem

MEDIA = b"application/problem+json"
PAGE = b"text/html; charset=utf-8"
RefusalPage = Callable[[HttpProblem, Scope], str]  # of a refusal and the scope of its request
LONGEST_INSTANCE = 512
# A page may load our own style sheet, script and pictures: nothing inline, nothing from elsewhere.
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",  # with no-referrer a browser would hide the origin of our own forms from us
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def instance_of(scope: Scope) -> str:
    """Returns the requested path as it was sent: percent-encoded, shortened, without tokens in it."""
    raw: bytes = scope.get("raw_path") or str(scope.get("path", "")).encode()
    return redact(raw[:LONGEST_INSTANCE].decode("latin-1"))


def encode_problem(problem: HttpProblem, scope: Scope, page: RefusalPage | None = None) -> bytes:
    """Returns the page that `page` makes for a browser; otherwise JSON, in ASCII without control characters."""
    if page is not None and _is_page(scope):
        return page(problem, scope).encode()
    request_id = scope.get("state", {}).get("request_id", "")
    return json.dumps(problem.body(instance_of(scope), request_id), default=str).encode()


def headers_of(
    problem: HttpProblem,
    body: bytes,
    scope: Scope,
    *,
    page: RefusalPage | None = None,
    close: bool = False,
) -> list[tuple[bytes, bytes]]:
    is_page = page is not None and _is_page(scope)
    headers = [(b"content-type", PAGE if is_page else MEDIA), (b"content-length", str(len(body)).encode())]
    extra_headers = problem.headers | (PAGE_HEADERS if is_page else {})
    headers += [(name.lower().encode(), value.encode("latin-1")) for name, value in extra_headers.items()]
    if close:
        headers.append((b"connection", b"close"))
    return headers


def _is_page(scope: Scope) -> bool:
    return lane_of_scope(scope).page

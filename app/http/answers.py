"""Turns a refusal into a response, as a problem for programs or as a page for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any

from app.http.lanes import lane_of_scope
from app.http.redact import redact
from app.problem import HttpProblem

MEDIA = b"application/problem+json"
PAGE = b"text/html; charset=utf-8"
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
_HTML = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} - gpuwright</title><link rel="stylesheet" href="/console/console.css"></head>
<body class="door"><main><h1>{title}</h1><p>{detail}</p><p><a href="">Try again</a></p>
<p class="quiet">{status} · request {request_id}</p></main></body></html>
"""


def instance_of(scope: Mapping[str, Any]) -> str:
    """Returns the requested path as it was sent: percent-encoded, shortened, without tokens in it."""
    raw: bytes = scope.get("raw_path") or str(scope.get("path", "")).encode()
    return redact(raw[:LONGEST_INSTANCE].decode("latin-1"))


def encoded(problem: HttpProblem, scope: Mapping[str, Any]) -> bytes:
    """Returns the encoded document; JSON is ASCII with escapes, so that no control character is sent back."""
    request_id = scope.get("state", {}).get("request_id", "")
    if _is_page(scope):
        fields = {"title": problem.title, "detail": problem.detail, "status": problem.status, "request_id": request_id}
        return _HTML.format(**{name: escape(str(value)) for name, value in fields.items()}).encode()
    return json.dumps(problem.body(instance_of(scope), request_id), default=str).encode()


def headers_of(
    problem: HttpProblem, body: bytes, scope: Mapping[str, Any], *, close: bool = False
) -> list[tuple[bytes, bytes]]:
    is_page = _is_page(scope)
    headers = [(b"content-type", PAGE if is_page else MEDIA), (b"content-length", str(len(body)).encode())]
    extra_headers = problem.headers | (PAGE_HEADERS if is_page else {})
    headers += [(name.lower().encode(), value.encode("latin-1")) for name, value in extra_headers.items()]
    if close:
        headers.append((b"connection", b"close"))
    return headers


def _is_page(scope: Mapping[str, Any]) -> bool:
    return lane_of_scope(scope).page

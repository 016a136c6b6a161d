"""Sorts requests into kinds of traffic, each with its own body size, limits and need for a token."""

from __future__ import annotations

import re
from dataclasses import dataclass

from starlette.types import Scope

from agents.contract.fields import MOST_REPORT_BYTES

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True, eq=False)
class RequestLane:
    """Requests that are limited together and apart from all others."""

    name: str
    body_limit: int = 1 * MIB
    anonymous: bool = False  # no token: limited by the peer's address
    node: bool = False  # here tokens of nodes and gateways get their own bucket and their own store of body bytes
    long: bool = False  # waits for an event: takes no slot, and ends at once on shutdown
    streams: bool = False  # its answer is sent while it is made; any other is sent once it is complete
    guarded: bool = False  # brings a secret in its body or query: wrong ones count as failed authentications
    heavy: bool = False  # reads much: few at a time, one for each caller, so that others get the processor, too
    asks: bool = False  # waits for the solver, for which it decodes a snapshot: few at a time, apart from other pages
    page: bool = False  # for a browser: a visitor without a session passes without a principal; refusals are pages


GENERAL = RequestLane("general")
APPLY = RequestLane("apply", body_limit=16 * MIB)
WHAT_IF = RequestLane("whatif", body_limit=16 * MIB)  # as an apply, of which it is the question
WATCH = RequestLane("watch", long=True, streams=True)
REPORT = RequestLane("report", body_limit=MOST_REPORT_BYTES, node=True)
ASSIGNMENT = RequestLane("assignment", node=True, long=True)
PROFILING = RequestLane("profiling", node=True)
PRINTED = RequestLane("printed", node=True)
LOGS = RequestLane("logs", long=True)
LOGS_PAGE = RequestLane("logs-page", body_limit=4 * KIB, long=True, page=True)
ENDPOINTS = RequestLane("endpoints", long=True)
COUNTS = RequestLane("counts", body_limit=2 * MIB, node=True)
HEAVY = RequestLane("heavy", heavy=True)
METRICS = RequestLane("metrics")
PROBE = RequestLane("probe", body_limit=4 * KIB, anonymous=True)
JOIN = RequestLane("join", body_limit=64 * KIB, anonymous=True, guarded=True)
PEOPLE = RequestLane("people", body_limit=128 * KIB, anonymous=True, guarded=True)
CONSOLE = RequestLane("console", body_limit=4 * KIB, heavy=True, page=True)
QUESTION = RequestLane("question", body_limit=4 * KIB, asks=True, page=True)
SIGN_IN = RequestLane("sign-in", body_limit=4 * KIB, anonymous=True, guarded=True, page=True)

RETURN = "/sign-in/provider/return"  # where a browser comes back from the people's provider

_BY_PATH = {
    "/api/v1/people": PEOPLE,
    "/api/v1/apply": APPLY,
    "/api/v1/whatif": WHAT_IF,
    "/api/v1/watch": WATCH,
    "/api/v1/endpoints": ENDPOINTS,
    "/metrics": METRICS,
    "/healthz": PROBE,
    "/readyz": PROBE,
    "/openapi.json": PROBE,
    "/docs": PROBE,
    "/docs/reference.css": PROBE,
    "/favicon.ico": PROBE,
    "/sign-in": SIGN_IN,
    "/sign-in/provider": SIGN_IN,
    RETURN: SIGN_IN,
}


_HEAVY = ("/api/v1/slo", "/api/v1/overview", "/api/v1/plans", "/api/v1/explain/", "/api/v1/reports")
_ASKING = re.compile(r"/services/[^/]+/[^/]+/(?:explain|price)")
_PRINTED_PAGE = re.compile(r"/(?:services|jobs)/[^/]+/[^/]+/logs")
_PAGE = re.compile(r"/(?:(?:services|nodes|plans|money|events|audit|jobs|what-if|search|sign-out|time-zone)(?:/.*)?)?")


def lane_of_scope(scope: Scope) -> RequestLane:
    """Returns the lane of a request; a browser that asks for an unknown path gets a page that says so."""
    lane = lane_of(scope.get("method", ""), scope.get("path", ""))
    if lane is GENERAL and not scope.get("path", "").startswith("/api/"):
        accepted = next((value for name, value in scope.get("headers", ()) if name == b"accept"), b"")
        return CONSOLE if b"text/html" in accepted else GENERAL
    return lane


def lane_of(method: str, path: str) -> RequestLane:
    """Returns the lane of a request by its path."""
    if path.startswith("/api/v1/nodes/"):
        return _lane_of_node(method, path)
    if path.startswith("/api/v1/gateways/") and path.endswith("/counts"):
        return COUNTS
    if path.startswith("/api/v1/logs/"):
        return LOGS
    lane = _BY_PATH.get(path)
    if lane is not None:
        return lane
    if path == "/api/v1/join" and method == "POST":
        return JOIN
    if path.startswith("/console/"):
        return PROBE
    if _PRINTED_PAGE.fullmatch(path):
        return LOGS_PAGE
    if _PAGE.fullmatch(path):
        return QUESTION if (method, path) == ("POST", "/what-if") or _ASKING.fullmatch(path) else CONSOLE
    if method == "GET" and path.startswith(_HEAVY):
        return HEAVY
    return GENERAL


def _lane_of_node(method: str, path: str) -> RequestLane:
    if path.endswith("/report"):
        return REPORT
    if path.endswith("/assignment"):
        return ASSIGNMENT
    if path.endswith("/profiling"):
        return PROFILING
    if path.endswith("/logs") and method == "POST":
        return PRINTED
    return GENERAL

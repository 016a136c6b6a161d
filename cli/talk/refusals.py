"""Refusals of the server: a line to act on, and an exit code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cli import exits
from cli.exits import Failed

if TYPE_CHECKING:
    from cli.talk.contexts import ServerContext

CODES = {
    400: exits.BAD_INPUT,
    404: exits.NO,
    413: exits.BAD_INPUT,
    415: exits.BAD_INPUT,
    422: exits.BAD_INPUT,
}


class ServerRefusal(Failed):
    """A problem document from the server; `status` is its HTTP status."""

    def __init__(self, message: str, code: int, particulars: list[str], status: int, problem: dict[str, Any]) -> None:
        super().__init__(message, code, particulars)
        self.status = status
        self.problem = problem


def refusal(status: int, headers: Mapping[str, str], problem: Any, connection: ServerContext) -> ServerRefusal:
    """Formats a refusal, with each fault and each referrer on its own line."""
    if not isinstance(problem, dict):
        problem = {}
    detail = str(problem.get("detail") or problem.get("title") or f"the server answered {status}")
    lines = [line for line in map(fault_line, _read_entries(problem, "faults")) if line != detail]
    lines += map(_referrer, _read_entries(problem, "referrers"))
    lines += map(_occupant, _read_entries(problem, "occupants"))
    code = CODES.get(status, exits.UNREACHABLE if status >= 500 or status == 429 else exits.REFUSED)
    step = ""
    if status == 401:
        step = f" ({connection.origin}); give another with --token-file, or: gpuwright config set --help"
        if "admin.token" in connection.origin:
            step += "; `gpuwright up` on its folder makes a new admin token"
    elif status == 403:
        step = f" ({connection.origin}; see: gpuwright whoami)"
    elif status == 429 or status == 503:
        step = "" if "ask again" in detail else "; try again later"
    elif status >= 500:
        step = f"; the server's log has request {problem.get('requestId') or headers.get('x-request-id', '?')}"
    elif status == 404 and not problem:
        step = f"; is {connection.server} a gpuwright server?"
    return ServerRefusal(detail + step, code, lines, status, problem)


def _read_entries(problem: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    found = problem.get(key)
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def fault_line(fault: Mapping[str, Any]) -> str:
    """`fleet.yaml#3 Service shop/search: spec.slo.latencyMs: must be over 0 (allowed: ...)`."""
    where = ": ".join(str(fault[part]) for part in ("document", "field") if fault.get(part))
    message = str(fault.get("message", ""))
    allowed = str(fault.get("allowed") or "")
    if allowed and allowed not in message:
        message += f" (allowed: {allowed})"
    if fault.get("suggestion"):
        message += f"; did you mean `{fault['suggestion']}`?"
    return f"{where}: {message}" if where else message


def _referrer(entry: Mapping[str, Any]) -> str:
    if "count" in entry:
        return f"referred to by {entry['count']} of {entry.get('tenant', 'another tenant')}"
    name = f"{entry['tenant']}/{entry.get('name')}" if entry.get("tenant") else str(entry.get("name"))
    return f"referred to by {entry.get('kind')} {name}"


def _occupant(entry: Mapping[str, Any]) -> str:
    state = entry.get("stage") or "assigned"
    return f"{entry.get('node')}: {entry.get('instance')} of {entry.get('kind')} {entry.get('of')} ({state})"

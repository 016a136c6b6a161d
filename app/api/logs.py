"""The output of services and jobs: read from the nodes that run them, and passed on."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypedDict

import msgspec
from fastapi import Path, Query, Request, Response
from sqlalchemy import Connection
from starlette.concurrency import run_in_threadpool

from agents.contract.logs import LONGEST_LOG_WAIT_SECONDS, LogText, LogWanted
from app.access import AccessVerb, Noun, require
from app.api.objects import Name
from app.api.replies import Reply, TypedRouter, takes
from app.api.requests import Ctx, Who, answer, body, context
from app.context import Context
from app.manifests.faults import escape
from app.manifests.model import Key, Kind
from app.problem import HttpProblem
from app.store.fleet import log_requests
from app.store.fleet.log_requests import ANSWER_SECONDS, LoggedInstance, LogPart
from app.store.world import objects

router = TypedRouter(prefix="/api/v1", tags=["logs"])

MOST_INSTANCES = 16  # that one request reads
MOST_WAITING = 500  # requests on their way to nodes
MOST_WAITING_OF_TENANT = 100  # so that readers of one tenant leave room for those of the others
LOOK_SECONDS = 1.0
ID_BYTES = 9
# COPY@OFFSET, as nodes take it: with anything else a node would refuse its whole assignment.
_PLACE = re.compile(r"[!-+\--~]{0,140}@[0-9]{1,15}")
_text = msgspec.json.Decoder(LogText)
After = Annotated[str, Query(max_length=4000, description="`after` of the last answer: only what was printed since")]
Wait = Annotated[
    float, Query(alias="waitSeconds", ge=0, le=LONGEST_LOG_WAIT_SECONDS, description="How long to wait for more")
]


class LogPartWire(TypedDict):
    """What a copy printed; `answered` is false if its node did not answer in time."""

    instance: str
    node: str
    copy: str | None
    text: str
    answered: bool


class LogListWire(TypedDict):
    """What copies printed; `after` of this answer asks for what follows."""

    kind: Literal["LogList"]
    items: list[LogPartWire]
    after: str


@router.get("/logs/services/{tenant}/{name}", summary="What the instances of a service print")
async def service_logs(
    ctx: Ctx, who: Who, tenant: Name, name: Name, after: After = "", wait_seconds: Wait = 0.0
) -> Reply[LogListWire]:
    """The last lines of each instance or, with `after`, what was printed since. Nodes keep 2 MiB at most of each."""
    require(who, Kind.SERVICE, AccessVerb.READ, tenant)
    return answer(await read_logs(ctx, Key(Kind.SERVICE, tenant, name), after, wait_seconds))


@router.get("/logs/jobs/{tenant}/{name}", summary="What a job prints")
async def job_logs(
    ctx: Ctx, who: Who, tenant: Name, name: Name, after: After = "", wait_seconds: Wait = 0.0
) -> Reply[LogListWire]:
    """The last lines of its newest process or, with `after`, what was printed since, also by the processes after it."""
    require(who, Kind.JOB, AccessVerb.READ, tenant)
    return answer(await read_logs(ctx, Key(Kind.JOB, tenant, name), after, wait_seconds))


@router.post(
    "/nodes/{name}/logs", status_code=204, summary="A node's answer to a request for logs", openapi_extra=takes(LogText)
)
async def take_logs(request: Request, who: Who, name: Annotated[str, Path(max_length=63)]) -> Response:
    """Sent by the node's agent. An answer that comes too late is dropped."""
    require(who, Noun.REPORT, AccessVerb.WRITE, name)
    try:
        text = _text.decode(body(request))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise HttpProblem("invalid", f"the body is no answer to a request for logs: {error}") from None
    text.text = text.text.replace("\0", "")  # which Postgres does not store
    await context(request).nodes.lane.write(lambda connection: log_requests.keep(connection, name, text))
    return Response(status_code=204)


async def read_logs(ctx: Context, key: Key, after: str = "", seconds: float = 0.0) -> LogListWire:
    """Returns what copies print, by connections and threads of requests: the nodes' own are left to what nodes send."""
    places = _places(after)
    found = await run_in_threadpool(ctx.database.read, lambda connection: _instances(connection, key))
    if not found:
        return {"kind": "LogList", "items": [], "after": ""}
    wanted = [
        (line.node, LogWanted(secrets.token_hex(ID_BYTES), line.instance, places.get(line.instance, ""), seconds))
        for line in found
    ]
    ids = [request.id for _, request in wanted]

    def ask(connection: Connection) -> None:
        waiting, more = log_requests.waiting(connection, key.tenant), len(wanted)
        if waiting.of_tenant + more > MOST_WAITING_OF_TENANT or waiting.of_all + more > MOST_WAITING:
            whose = f" of tenant {key.tenant}" if waiting.of_tenant + more > MOST_WAITING_OF_TENANT else ""
            why = f"too many logs{whose} are being read; try again"
            raise HttpProblem("unavailable", why, headers={"Retry-After": "5"})
        log_requests.ask(connection, key.tenant, wanted, seconds + ANSWER_SECONDS)

    await run_in_threadpool(ctx.database.write, ask)
    try:
        parts = await _await_answers(ctx, ids, seconds)
    finally:
        await run_in_threadpool(ctx.database.write, lambda connection: log_requests.remove(connection, ids))
    return {"kind": "LogList", "items": [_item(part) for part in parts], "after": _spell_places(parts)}


async def _await_answers(ctx: Context, ids: Sequence[str], seconds: float) -> list[LogPart]:
    """Returns the answers once one has text and the others had a moment, or all have come, or time is up."""
    ends_at = time.monotonic() + seconds + ANSWER_SECONDS
    while True:
        version = ctx.notices.current(log_requests.STREAM)
        parts = await run_in_threadpool(
            ctx.database.read, lambda connection: log_requests.read_answered(connection, ids)
        )
        left = ends_at - time.monotonic()
        if left <= 0 or all(part.is_answered for part in parts):
            return parts
        if any(part.text for part in parts) and seconds:
            return parts
        await asyncio.wait_for(
            ctx.notices.wait(log_requests.STREAM, version, min(left, LOOK_SECONDS)), LOOK_SECONDS + left
        )


def _instances(connection: Connection, key: Key) -> list[LoggedInstance]:
    if objects.get(connection, key) is None:
        raise HttpProblem("not-found", f"there is no {key.kind} of that name")
    service, job = (key.name, "") if key.kind is Kind.SERVICE else ("", key.name)
    return log_requests.instances(connection, key.tenant, service, job, MOST_INSTANCES)


def _item(part: LogPart) -> LogPartWire:
    copy = part.ends.rpartition("@")[0]
    return {
        "instance": part.instance, "node": part.node, "copy": copy or None, "text": part.text,
        "answered": part.is_answered,
    }  # fmt: skip


def _spell_places(parts: Sequence[LogPart]) -> str:
    """Returns where to read on: for each instance the place up to which it was read."""
    places = {part.instance: part.ends if _PLACE.fullmatch(part.ends) else part.begins for part in parts}
    return ",".join(f"{instance}={place}" for instance, place in places.items() if place)


def _places(after: str) -> Mapping[str, str]:
    found = dict(part.partition("=")[::2] for part in after.split(",")) if after else {}
    for name, place in found.items():
        if not name or not _PLACE.fullmatch(place):
            raise HttpProblem("bad-request", f"after={escape(after[:80])!r} is not from an earlier answer")
    return found

"""Streams changes as server-sent events: every change after a version, once, in commit order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from sqlalchemy import Connection
from starlette.concurrency import run_in_threadpool

from app.access import AccessVerb, Principal, readable, require
from app.api.requests import Ctx, Who
from app.api.selectors import SelectorTerms, parse
from app.api.visibility import show_object, show_removal
from app.context import Context
from app.manifests.model import BY_PLURAL, Key, Kind, Manifest
from app.manifests.selectable import selector_entries
from app.problem import HttpProblem
from app.store.database import versions
from app.store.world import changes
from app.store.world.changes import ObjectChange
from app.tokens import explain_revocation

router = APIRouter(prefix="/api/v1", tags=["watch"])

HEARTBEAT_SECONDS = 10.0
BATCH = 500


@dataclass(frozen=True, slots=True)
class WatchFilter:
    """The changes that a watcher follows."""

    kinds: Sequence[Kind]
    tenant: str  # only this tenant's; empty: all
    admitting: str  # only what this tenant may see; empty: everything
    terms: SelectorTerms


@router.get("/watch", summary="Changes as server-sent events, resumable from a resource version")
async def watch(
    request: Request,
    ctx: Ctx,
    who: Who,
    resource_version: Annotated[
        int | None, Query(alias="resourceVersion", ge=0, lt=2**62, description="Changes after this version")
    ] = None,
    kinds: Annotated[str, Query(description="Plural kinds, separated by commas; all readable when empty")] = "",
    tenant: Annotated[str, Query(max_length=63)] = "",
    label_selector: Annotated[str, Query(alias="labelSelector", max_length=2000)] = "",
) -> StreamingResponse:
    wanted = WatchFilter(_kinds(kinds, who), _tenant(tenant, who), who.tenant, parse(label_selector))
    start = _resume_point(request, resource_version)
    latest, floor = (await run_in_threadpool(ctx.database.read, versions.current))["object"]
    if start is None:
        start = latest
    elif start < floor:
        raise HttpProblem(
            "gone",
            f"changes up to {floor} are no longer kept; list again and watch from the list's resourceVersion",
            oldest=floor,
        )
    elif start > latest:
        raise HttpProblem("gone", f"version {start} is newer than the latest here, {latest}; list again", oldest=floor)
    tokens_version = ctx.notices.current("token")
    if not await ctx.nodes.lane.is_current(ctx.authenticator, who):  # it may have ended since it was let in
        raise explain_revocation()
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    events = _stream(ctx, who, wanted, start, tokens_version)
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


async def _stream(
    ctx: Context, who: Principal, wanted: WatchFilter, version: int, tokens_version: int
) -> AsyncIterator[bytes]:
    """Yields changes as they become visible, heartbeats in between, and an end when the token ends."""
    yield b": heartbeat %d\n\n" % version
    while True:
        latest = await ctx.notices.wait("object", version, 0)
        while version < latest:
            found = await run_in_threadpool(ctx.database.read, _reader(wanted, version, latest))
            if found is None:
                yield _end("changes after this version are no longer kept; list again")
                return
            for change in found:
                event = _event(change, wanted)
                if event:
                    yield event
            version = found[-1].version if len(found) == BATCH else latest
        if not await _wait_for_news(ctx, version, tokens_version, who):
            yield b": heartbeat %d\n\n" % version
        tokens_now = ctx.notices.current("token")
        if _is_expired(who) or (
            tokens_now != tokens_version and not await ctx.nodes.lane.is_current(ctx.authenticator, who)
        ):
            yield _end("the token has expired or was revoked")
            return
        tokens_version = tokens_now


async def _wait_for_news(ctx: Context, version: int, tokens_version: int, who: Principal) -> bool:
    """Waits for a change, the end of a token, or the next heartbeat; True when there is a change."""
    seconds = HEARTBEAT_SECONDS
    if who.expires_at is not None:
        seconds = min(seconds, max(0.0, (who.expires_at - datetime.now(UTC)).total_seconds()))
    waits = [
        asyncio.ensure_future(ctx.notices.wait("object", version, seconds)),
        asyncio.ensure_future(ctx.notices.wait("token", tokens_version, seconds)),
    ]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*waits, return_exceptions=True)
    return ctx.notices.current("object") > version


def _reader(wanted: WatchFilter, version: int, upto: int) -> Callable[[Connection], list[ObjectChange] | None]:
    """Returns a reader of the changes after `version`; it returns None where this watcher was too slow for them."""
    tenant = wanted.tenant or wanted.admitting

    def read(connection: Connection) -> list[ObjectChange] | None:
        if version < versions.current(connection)["object"][1]:
            return None
        return changes.read_changes_after(connection, version, upto, wanted.kinds, tenant, BATCH)

    return read


def _end(reason: str) -> bytes:
    return b"event: end\ndata: %s\n\n" % msgspec.json.encode({"reason": reason})


def _event(change: ObjectChange, wanted: WatchFilter) -> bytes | None:
    action = change.action_for(wanted.admitting)
    if action is None or (wanted.tenant and change.tenant != wanted.tenant):
        return None
    if (wanted.terms.has or wanted.terms.lacks) and not _is_selected(change, wanted.terms):
        return None
    hidden = action == "deleted" and change.action != "deleted"
    wire = show_removal(change.object) if hidden else show_object(change.object, wanted.admitting)
    data = msgspec.json.encode({"type": action, "object": wire})
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (change.version, action.encode(), data)


def _is_selected(change: ObjectChange, terms: SelectorTerms) -> bool:
    metadata = change.object["metadata"]
    key = Key(change.kind, change.tenant, metadata["name"])
    entries = set(selector_entries(Manifest(*key, change.object["spec"], metadata["labels"])))
    return entries.issuperset(terms.has) and entries.isdisjoint(terms.lacks)


def _kinds(text: str, who: Principal) -> list[Kind]:
    may = readable(who)
    if not text:
        if not may:
            raise HttpProblem("forbidden", f"a token of scope {who.role} may not watch anything")
        return may
    chosen = []
    for plural in text.split(","):
        kind = BY_PLURAL.get(plural.strip())
        if kind is None:
            allowed = ", ".join(sorted(BY_PLURAL))
            raise HttpProblem("bad-request", f"kinds: {plural[:40]!r} is not one of {allowed}")
        require(who, kind, AccessVerb.READ)
        chosen.append(kind)
    return chosen


def _tenant(tenant: str, who: Principal) -> str:
    if tenant and who.tenant and tenant != who.tenant:
        raise HttpProblem("not-found", "there is no such tenant")
    return tenant


def _resume_point(request: Request, resource_version: int | None) -> int | None:
    """Returns the version to continue from: Last-Event-ID of a reconnecting client wins over its first request."""
    last = request.headers.get("last-event-id", "").strip()
    if not last:
        return resource_version
    if not last.isascii() or not last.isdigit() or len(last) > 18:
        raise HttpProblem("bad-request", "Last-Event-ID must be a resource version")
    return int(last)


def _is_expired(who: Principal) -> bool:
    return who.expires_at is not None and who.expires_at <= datetime.now(UTC)

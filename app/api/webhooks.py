"""Webhooks: how each does, what it did not get; tries one, sends its dead letters again or discards them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal, TypedDict

from fastapi import Path, Query, Request
from pydantic import Field
from sqlalchemy import Connection

from app.access import AccessVerb, Noun, require
from app.api.replies import Reply, TypedRouter
from app.api.requests import By, Ctx, NoBody, Who, answer, write_once
from app.control.domain.events import Reason
from app.manifests.model import Free
from app.problem import HttpProblem
from app.store.world import audit, webhooks
from app.store.world.objects import rfc3339
from app.store.world.webhooks import HookStanding
from app.webhooks.hooks import Webhook
from app.wire import MomentText

router = TypedRouter(prefix="/api/v1/webhooks", tags=["events"])

LetterId = Annotated[int, Field(ge=1, le=2**63 - 1)]
HookName = Annotated[str, Path(max_length=63, pattern=r"^[a-z0-9-]+$")]


class WebhookWire(TypedDict):
    """A webhook of this server's file, and how it does; its address is shown to nobody."""

    name: str
    host: str
    format: str
    stream: str
    severities: list[str]
    reasons: list[str]
    tenants: list[str]
    sent: int
    sentAt: MomentText | None
    waiting: int
    dead: int
    error: str | None


class WebhookListWire(TypedDict):
    """A list of Webhook objects."""

    kind: Literal["WebhookList"]
    items: list[WebhookWire]


class DeadLetterWire(TypedDict):
    """An event that a webhook did not get, or `{"audit": ID}` for an entry of the audit."""

    id: int
    at: MomentText
    attempts: int
    error: str
    event: Free


class DeadLetterListWire(TypedDict):
    """A list of DeadLetter objects, the last first; at most 100."""

    kind: Literal["DeadLetterList"]
    items: list[DeadLetterWire]


class WebhookDoneWire(TypedDict):
    """How many deliveries a request has put in the queue."""

    name: str
    queued: int


class DiscardedWire(TypedDict):
    """Which dead letters are gone."""

    name: str
    discarded: list[int]


@router.get("", summary="Webhooks, with what waits and what failed")
def list_webhooks(ctx: Ctx, who: Who) -> Reply[WebhookListWire]:
    require(who, Noun.WEBHOOK, AccessVerb.READ)
    known = {one.name: one for one in ctx.database.read(webhooks.read_standing)}
    return answer({"kind": "WebhookList", "items": [_describe(hook, known) for hook in ctx.hooks]})


@router.get("/{name}/dead-letters", summary="What a webhook did not get, the last first")
def list_dead_letters(ctx: Ctx, who: Who, name: HookName) -> Reply[DeadLetterListWire]:
    require(who, Noun.WEBHOOK, AccessVerb.READ)
    _find(ctx.hooks, name)
    letters = ctx.database.read(lambda connection: webhooks.read_dead(connection, name))
    items: list[DeadLetterWire] = [
        {"id": one.id, "at": rfc3339(one.created_at), "attempts": one.attempts, "error": one.error, "event": one.event}
        for one in letters
    ]
    return answer({"kind": "DeadLetterList", "items": items})


@router.post("/{name}/retry", summary="Send a webhook's dead letters again")
def retry_dead_letters(
    request: Request, ctx: Ctx, who: Who, by: By, name: HookName, _body: NoBody
) -> Reply[WebhookDoneWire]:
    require(who, Noun.WEBHOOK, AccessVerb.WRITE)
    _find(ctx.hooks, name)

    def retry(connection: Connection) -> Reply[WebhookDoneWire]:
        queued = webhooks.retry_dead(connection, name)
        audit.record(connection, [by.entry("retry", Noun.WEBHOOK, name=name, detail=f"{queued} dead letters")])
        return answer({"name": name, "queued": queued})

    return write_once(request, b"", retry)


@router.delete("/{name}/dead-letters", summary="Discard dead letters of a webhook: these, or all")
def discard_dead_letters(
    request: Request,
    ctx: Ctx,
    who: Who,
    by: By,
    name: HookName,
    _body: NoBody,
    ids: Annotated[
        list[LetterId] | None, Query(alias="id", max_length=100, description="Of these; without, all")
    ] = None,
) -> Reply[DiscardedWire]:
    require(who, Noun.WEBHOOK, AccessVerb.WRITE)
    _find(ctx.hooks, name)

    def discard(connection: Connection) -> Reply[DiscardedWire]:
        found = webhooks.discard_dead(connection, name, ids)
        if absent := sorted(set(ids or ()) - found.keys()):
            raise HttpProblem("not-found", f"webhook {name} has no dead letter {', '.join(map(str, absent))}")
        entries = [
            by.entry("discard", Noun.WEBHOOK, name=name, detail=f"dead letter {letter}: {_spell(event)}")
            for letter, event in found.items()
        ]
        audit.record(connection, entries)
        return answer({"name": name, "discarded": list(found)})

    return write_once(request, b"", discard)


@router.post("/{name}/try", status_code=202, summary="Send an event to one webhook, to see whether it arrives")
def try_webhook(request: Request, ctx: Ctx, who: Who, by: By, name: HookName, _body: NoBody) -> Reply[WebhookDoneWire]:
    require(who, Noun.WEBHOOK, AccessVerb.WRITE)
    hook = _find(ctx.hooks, name)
    event: Free = {
        "at": rfc3339(datetime.now(UTC)), "reason": Reason.WEBHOOK_TRIED.value, "severity": "info", "kind": "Webhook",
        "tenant": "", "name": name, "message": Reason.WEBHOOK_TRIED.sentence, "generation": None,
    }  # fmt: skip

    def send(connection: Connection) -> Reply[WebhookDoneWire]:
        # A hook of the audit gets the entry below.
        if hook.stream == "events" and not webhooks.try_hook(connection, name, event):
            raise HttpProblem("unavailable", f"webhook {name} is not ready yet", headers={"Retry-After": "2"})
        audit.record(connection, [by.entry("try", Noun.WEBHOOK, name=name)])
        return answer({"name": name, "queued": 1}, 202)

    return write_once(request, b"", send)


def _spell(event: Free) -> str:
    if "audit" in event:
        return f"audit entry {event['audit']}"
    return f"{event.get('reason')} of {event.get('kind')}/{event.get('name')}"


def _find(hooks: Sequence[Webhook], name: str) -> Webhook:
    for hook in hooks:
        if hook.name == name:
            return hook
    raise HttpProblem("not-found", f"there is no webhook {name} in the file of GPUWRIGHT_WEBHOOKS_FILE")


def _describe(hook: Webhook, known: Mapping[str, HookStanding]) -> WebhookWire:
    found = known.get(hook.name, HookStanding(hook.name, 0, None, "", 0, 0))
    return {
        "name": hook.name,
        "host": hook.host,
        "format": hook.form,
        "stream": hook.stream,
        "severities": list(hook.severities),
        "reasons": list(hook.reasons),
        "tenants": list(hook.tenants),
        "sent": found.sent,
        "sentAt": rfc3339(found.sent_at) if found.sent_at else None,
        "waiting": found.waiting,
        "dead": found.dead,
        "error": found.error or None,
    }

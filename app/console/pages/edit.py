"""Undoes an edit of the declared world, after a page that says what changes: the object is again as it was before."""

from __future__ import annotations

from datetime import datetime

from fastapi import APIRouter, Request, Response
from sqlalchemy import Connection

from app.access import AccessVerb, Noun, Principal, require
from app.api.change_events import record_changes
from app.api.requests import Ctx
from app.console.confirm import Confirmation
from app.console.data import read_planned
from app.console.edits import CREATE, confirm_delete, confirm_undo, is_edit, key_of, read_declared
from app.console.forms import actor_of, change, form_token, read_form
from app.console.links import audit_link
from app.console.page_answer import redirect, show
from app.console.page_request import read_id
from app.console.refusals import unknown_name
from app.console.visitor import Viewer
from app.manifests.model import Key
from app.problem import HttpProblem
from app.store.database import clock
from app.store.world import audit, objects
from app.store.world.audit import AuditFilter, AuditRow
from app.store.world.objects import StoredObject
from app.world import declare
from app.world.write import Actor

router = APIRouter(include_in_schema=False)

NEWEST = 2**62
MOST_ENTRIES = 50  # of an object: refused ones may be newer than the last that changed it


@router.get("/audit/{entry}/undo")
def confirm(request: Request, ctx: Ctx, who: Viewer, entry: str) -> Response:
    """Asks before an edit is undone."""

    def read(connection: Connection) -> tuple[datetime, Confirmation]:
        row = _read_edit(connection, who, entry)
        current = _read_unchanged(connection, row)
        at = clock.moment(connection)
        if row["verb"] != CREATE:
            return at, confirm_undo(row, current.wire() if current else None)
        declare.delete(connection, actor_of(request, who), key_of(row), dry_run=True)
        return at, confirm_delete(row, read_planned(connection, "").body)

    at, ask = ctx.database.read(read)
    return show(request, who, "confirm.html", at, ask=ask, form=form_token(who), most=0)


@router.post("/audit/{entry}/undo")
def undo(request: Request, ctx: Ctx, who: Viewer, entry: str) -> Response:
    """Declares the object as it was before the edit; deletes one that it created."""
    read_form(request, who)
    settings = ctx.settings

    def write(connection: Connection, by: Actor) -> str:
        row = _read_edit(connection, who, entry)
        key = key_of(row)
        current = _read_unchanged(connection, row)
        expected = current.resource_version if current else declare.NO_VERSION
        if row["verb"] == CREATE:
            done = declare.delete(connection, by, key, expected=expected)
        else:
            before = declare.merge_patch(row["before"] or {}, {}, key)
            done = declare.declare(
                connection, by, [before], currency=settings.currency, most_objects=settings.tenant_objects,
                expected=expected,
            )  # fmt: skip
        record_changes(connection, done.decisions, dry_run=False)
        return audit_link(key.kind, key.full_name)

    return redirect(change(request, who, write))


def _read_unchanged(connection: Connection, row: AuditRow) -> StoredObject | None:
    """Returns the object as the edit left it, None where it deleted it; refuses one that was changed since."""
    key = key_of(row)
    current = objects.get(connection, key)
    if read_declared(current.wire() if current else None) != read_declared(row["after"]):
        raise _refuse_changed(key)
    if row["verb"] == CREATE and _read_newest(connection, row) != row["id"]:
        raise _refuse_changed(key)  # it may be alike, and yet another one, which somebody has created since
    return current


def _refuse_changed(key: Key) -> HttpProblem:
    return HttpProblem("conflict", f"{key} has been changed since this edit; undo its newest edit first")


def _read_newest(connection: Connection, row: AuditRow) -> int:
    """Returns the number of the newest entry that changed this object."""
    wanted = AuditFilter(kind=row["kind"], tenant=row["tenant"], name=row["name"])
    entries = audit.page(connection, NEWEST, MOST_ENTRIES, wanted)
    return next((entry["id"] for entry in entries if entry["outcome"] == "done"), 0)


def _read_edit(connection: Connection, who: Principal, entry: str) -> AuditRow:
    """Returns an entry that can be undone, for a visitor who may."""
    require(who, Noun.AUDIT, AccessVerb.READ)
    row = audit.get(connection, read_id(entry) or 0)
    if row is None or not is_edit(row):
        raise unknown_name("edit")
    require(who, key_of(row).kind, AccessVerb.WRITE, row["tenant"])
    return row

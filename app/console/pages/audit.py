"""The audit: who did what, by whom and in which outcome, the newest first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

import msgspec
from fastapi import APIRouter, Request, Response
from sqlalchemy import Connection

from app.access import AccessVerb, Noun, require
from app.api.requests import Ctx
from app.console.edits import is_edit
from app.console.links import subject_link
from app.console.page_answer import show
from app.console.page_request import PageQuery, read_id, read_text
from app.console.visitor import Viewer
from app.store.access import tokens
from app.store.database import clock
from app.store.world import audit
from app.store.world.audit import AuditFilter, AuditRow

router = APIRouter(include_in_schema=False)

PAGE_ROWS = 50
NEWEST = 2**62
LONGEST_DETAIL = 300


@dataclass(frozen=True, slots=True)
class AuditPageQuery(PageQuery):
    PATH: ClassVar[str] = "/audit"

    principal: str = ""  # a token's id
    verb: str = ""
    kind: str = ""
    name: str = ""  # of the object; of a tenant's object also tenant/name
    before: str = ""  # older than this entry


@router.get("/audit")
def audit_page(request: Request, ctx: Ctx, who: Viewer) -> Response:
    require(who, Noun.AUDIT, AccessVerb.READ)
    query = AuditPageQuery(**{name: read_text(request.query_params, name) for name in AuditPageQuery.__slots__})
    number = read_id(query.before)
    tenant, _, name = query.name.rpartition("/")
    wanted = AuditFilter(principal=query.principal, verb=query.verb, kind=query.kind, tenant=tenant, name=name)

    def read(connection: Connection) -> tuple[datetime, list[AuditRow], dict[str, str]]:
        rows = audit.page(connection, number or NEWEST, PAGE_ROWS + 1, wanted)
        return clock.moment(connection), rows, tokens.labels(connection, {row["principal"] for row in rows})

    at, rows, labels = ctx.database.read(read)
    return show(
        request, who, "audit.html", at, query=query, entries=[_line(row) for row in rows[:PAGE_ROWS]], labels=labels,
        older=query.url(before=rows[PAGE_ROWS - 1]["id"]) if len(rows) > PAGE_ROWS else "",
    )  # fmt: skip


def _line(row: AuditRow) -> dict[str, object]:
    """Returns an entry with the address of its object, and what was there before and after as text."""
    name = f"{row['tenant']}/{row['name']}" if row["tenant"] else row["name"]
    kind = "Node" if row["kind"] == "Cordon" else row["kind"]
    link = subject_link(kind, f"p{name}" if kind == "Plan" else name) if name else ""
    states = {when: _text(row[when]) for when in ("before", "after") if row[when] is not None}
    detail = row["detail"][:LONGEST_DETAIL]
    undo = f"/audit/{row['id']}/undo" if is_edit(row) else ""
    more = {"full_name": name, "link": link, "states": states, "detail": detail, "gpus": _gpus(row), "undo": undo}
    return {**row, **more}


def _gpus(row: AuditRow) -> str:
    """Returns `GPU 1` where a cordon or drain was of that GPU alone; empty where it was of the whole node."""
    before = (row["before"] or {}).get("cordons", ())
    places = [line.get("gpu") for line in (row["after"], *before) if line] if row["kind"] == Noun.CORDON else []
    return f"GPU {', '.join(map(str, places))}" if places and None not in places else ""


def _text(state: object) -> str:
    return msgspec.json.format(msgspec.json.encode(state), indent=1).decode()

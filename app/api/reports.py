"""What was used, what it cost, what was saved and what was kept: reports as JSON, CSV, and in FOCUS's columns."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Query, Response
from sqlalchemy import Connection

from app.access import AccessVerb, Noun, Reach, require
from app.api.requests import JSON, Ctx, Who
from app.manifests.faults import escaped
from app.problem import HttpProblem
from app.reports import documents, query, sheets
from app.store.database.clock import now
from app.store.money import report_queries

router = APIRouter(prefix="/api/v1/reports", tags=["reports"])

MOST = {"json": 10_000, "csv": 200_000, "focus": 200_000}  # rows of an answer
CSV = "text/csv; charset=utf-8"


@router.get("", summary="Which reports there are, by what, and what they tell")
def list_reports(who: Who) -> Response:
    """All that may be asked for."""
    require(who, Noun.MONEY, AccessVerb.READ)
    items = [
        {
            "name": name,
            "about": report.about,
            "by": [documents.camel(one) for one in report.dimensions] + list(query.GRAINS),
            "values": [documents.camel(one) for one in report.values],
        }
        for name, report in report_queries.REPORTS.items()
    ]
    return Response(msgspec.json.encode({"kind": "ReportList", "items": items}), media_type=JSON)


@router.get("/{name}", summary="A report: cost, usage, energy, slo, savings and others, by what is asked")
def report(
    ctx: Ctx,
    who: Who,
    name: str,
    by: Annotated[str, Query(max_length=200, description="As service,day; each report has a default")] = "",
    begins: Annotated[str, Query(alias="from", max_length=60, description="2026-11-01, or a moment")] = "",
    ends: Annotated[str, Query(alias="to", max_length=60, description="The first moment that is not in it")] = "",
    time_zone: Annotated[str, Query(alias="timeZone", max_length=60, description="Whose days and months")] = "UTC",
    tenant: Annotated[str, Query(max_length=63, description="Only this tenant's")] = "",
    form: Annotated[Literal["json", "csv", "focus"], Query(alias="format")] = "json",
) -> Response:
    """From the first of this month until now, where nothing else is asked. Money is exact: no figure is rounded.

    A tenant is told of its own; idle and unallocated GPUs are nobody's.
    """
    if require(who, Noun.MONEY, AccessVerb.READ, tenant) is Reach.OWN:
        tenant = who.tenant
    if form == "focus":
        if name != "cost":
            raise HttpProblem("bad-request", "format=focus is of the report cost alone")
        by = ",".join((*sheets.FOCUS_BY, _grain(by)))
    known = query.find_report(name)
    if known.is_of_fleet and who.tenant:
        raise HttpProblem("forbidden", f"the report {name} is of the whole fleet; a token of a tenant may not read it")
    if known.is_of_fleet and tenant:
        why = f"the report {name} is of the whole fleet, and not of tenant {escaped(tenant)!r}; leave tenant out"
        raise HttpProblem("bad-request", why)
    currency = ctx.settings.currency

    def read(connection: Connection) -> tuple[report_queries.ReportQuery, list[dict[str, Any]]]:
        asked = query.parse_query(name, by, begins, ends, time_zone, tenant, now(connection), MOST[form] + 1)
        return asked, report_queries.read(connection, asked)

    asked, rows = ctx.database.read(read)
    if len(rows) > MOST[form]:
        raise HttpProblem("bad-request", f"that are more than {MOST[form]} rows; ask by fewer words, or for less time")
    if form == "json":
        told = documents.document(asked, known, rows, currency)
        return Response(msgspec.json.Encoder(decimal_format="number").encode(told), media_type=JSON)
    text = sheets.focus(asked, rows, currency) if form == "focus" else sheets.sheet(asked, known, rows)
    named = f'attachment; filename="gpuwright-{name}.csv"'
    return Response("".join(text), media_type=CSV, headers={"Content-Disposition": named})


def _grain(by: str) -> str:
    """The time that charges are split by: FOCUS says by what else."""
    word = by.strip() or "day"
    if word not in query.GRAINS:
        allowed = f"one of {', '.join(query.GRAINS)}, or nothing, which is day"
        raise HttpProblem("bad-request", f"by={escaped(by)!r}: charges in FOCUS's columns are by {allowed}")
    return word

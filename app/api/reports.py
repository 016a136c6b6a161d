"""Reports on usage, cost, savings and SLOs, as JSON, as CSV and in the columns of FOCUS."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias, TypedDict

import msgspec
from fastapi import Query
from pydantic import BaseModel, Field
from sqlalchemy import Connection

from app.access import AccessVerb, Noun, Reach, require
from app.api.replies import Reply, TypedRouter
from app.api.requests import JSON, Ctx, Who, answer
from app.manifests.faults import escape
from app.problem import HttpProblem
from app.reports import documents, query, sheets
from app.reports.documents import MoneyReportWire
from app.store.database.clock import now
from app.store.money import report_queries
from app.wire import spell_camel

router = TypedRouter(prefix="/api/v1/reports", tags=["reports"])

MOST_ROWS = {"json": 10_000, "csv": 200_000, "focus": 200_000}  # by format
Rows: TypeAlias = list[dict[str, object]]
CSV = "text/csv; charset=utf-8"


class ReportDescriptionWire(TypedDict):
    """A report that may be asked for: its dimensions and figures."""

    name: str
    about: str
    by: list[str]
    values: list[str]


class ReportListWire(TypedDict):
    """A list of ReportDescription objects."""

    kind: Literal["ReportList"]
    items: list[ReportDescriptionWire]


@router.get("", summary="The reports, their dimensions and their figures")
def list_reports(who: Who) -> Reply[ReportListWire]:
    """Lists every report that may be asked for."""
    require(who, Noun.MONEY, AccessVerb.READ)
    items: list[ReportDescriptionWire] = [
        {
            "name": name,
            "about": report.about,
            "by": [spell_camel(word) for word in report.dimensions] + list(query.GRAINS),
            "values": [spell_camel(word) for word in report.values],
        }
        for name, report in report_queries.REPORTS.items()
    ]
    return answer({"kind": "ReportList", "items": items})


class ReportRequest(BaseModel):
    """The query parameters of a report."""

    by: Annotated[str, Field(max_length=200, description="As service,day; each report has a default")] = ""
    begins: Annotated[str, Field(alias="from", max_length=60, description="2026-11-01, or a moment")] = ""
    ends: Annotated[str, Field(alias="to", max_length=60, description="The first moment after the report")] = ""
    time_zone: Annotated[str, Field(alias="timeZone", max_length=60, description="Time zone of days and months")] = (
        "UTC"
    )
    tenant: Annotated[str, Field(max_length=63, description="Only this tenant's")] = ""
    form: Annotated[Literal["json", "csv", "focus"], Field(alias="format")] = "json"


@router.get(
    "/{name}",
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
    summary="A report: cost, usage, energy, slo, savings and others, by chosen dimensions",
)
def read_report(ctx: Ctx, who: Who, name: str, wanted: Annotated[ReportRequest, Query()]) -> Reply[MoneyReportWire]:
    """Covers this month until now by default. Money is exact: no figure is rounded.

    A tenant sees its own figures; idle and unallocated GPUs belong to no tenant.
    """
    is_own = require(who, Noun.MONEY, AccessVerb.READ, wanted.tenant) is Reach.OWN
    tenant, by, form, grain = who.tenant if is_own else wanted.tenant, wanted.by, wanted.form, ""
    if form == "focus":
        if name != "cost":
            raise HttpProblem("bad-request", f"format=focus exists for the report cost only, not for {escape(name)!r}")
        grain = _grain(by)
        by = ",".join((*sheets.FOCUS_BY, grain))
    known = query.find_report(name)
    if known.is_of_fleet and who.tenant:
        raise HttpProblem("forbidden", f"the report {name} covers the whole fleet; a tenant's token may not read it")
    if known.is_of_fleet and tenant:
        detail = f"the report {name} covers the whole fleet; leave out tenant={escape(tenant)}"
        raise HttpProblem("bad-request", detail)
    currency, most = ctx.settings.currency, MOST_ROWS[form]

    def read(
        connection: Connection,
    ) -> tuple[report_queries.ReportQuery, Rows, Rows]:
        span = query.ReportSpan(wanted.begins, wanted.ends, wanted.time_zone, now(connection))
        parsed = query.parse_query(name, by, span, tenant, most + 1)
        rows = report_queries.read(connection, parsed)
        if not grain:
            return parsed, rows, []
        of_tokens = query.parse_query("tokens", ",".join((*sheets.TOKENS_BY, grain)), span, tenant, most + 1)
        return parsed, rows, report_queries.read(connection, of_tokens)

    parsed, rows, tokens = ctx.database.read(read)
    if max(len(rows), len(tokens)) > most:
        raise HttpProblem("bad-request", f"the report has more than {most} rows; ask by fewer words, or for less time")
    if form == "json":
        document: MoneyReportWire = documents.document(parsed, known, rows, currency)
        return Reply(msgspec.json.Encoder(decimal_format="number").encode(document), media_type=JSON)
    text = sheets.focus(parsed, rows, currency, tokens) if form == "focus" else sheets.sheet(parsed, known, rows)
    disposition = f'attachment; filename="gpuwright-{name}.csv"'
    return Reply("".join(text), media_type=CSV, headers={"Content-Disposition": disposition})


def _grain(by: str) -> str:
    """Returns hour, day or month: FOCUS fixes every other dimension."""
    word = by.strip() or "day"
    if word not in query.GRAINS:
        allowed = f"allowed: {', '.join(query.GRAINS)}, or nothing, which is day"
        raise HttpProblem("bad-request", f"by={escape(by)!r}: format=focus splits charges by time only; {allowed}")
    return word

"""Schemas of what is kept: events, audit entries, tokens, SLOs, money, and the server's own health."""

from __future__ import annotations

from collections.abc import Mapping

from app.openapi.answers.parts import (
    FREE,
    MOMENT,
    NUMBER,
    SEVERITY,
    TEXT,
    TEXTS,
    WHOLE,
    Schema,
    array,
    component,
    listing,
    nullable,
    record,
)

FIGURE: Schema = {"type": ["number", "string", "null"]}
TOKEN: Mapping[str, Schema] = {
    "id": TEXT,
    "scope": TEXT,
    **{name: nullable(TEXT) for name in ("tenant", "node", "gateway")},
    "label": TEXT,
    "createdBy": TEXT,
    "createdAt": MOMENT,
    **{name: nullable(MOMENT) for name in ("expiresAt", "revokedAt", "lastUsedAt")},
}
SECRET: Mapping[str, Schema] = {"token": {**TEXT, "description": "The secret, shown this once"}}
SHARES: Schema = {"type": "object", "additionalProperties": nullable(NUMBER)}  # by window

RECORDS: Mapping[str, Schema] = {
    "Event": record(
        "What happened; `times` counts repetitions",
        {
            "id": WHOLE,
            "at": MOMENT,
            "lastAt": MOMENT,
            "times": WHOLE,
            "reason": TEXT,
            "severity": SEVERITY,
            **{name: nullable(TEXT) for name in ("kind", "tenant", "name")},
            "message": TEXT,
            "generation": nullable(WHOLE),
        },
    ),
    "EventList": listing("EventList", "Event"),
    "AuditEntry": record(
        "Who did what, with the object before and after",
        {
            "id": WHOLE,
            "at": MOMENT,
            **dict.fromkeys(("requestId", "principal", "scope", "verb", "outcome", "kind", "name"), TEXT),
            **{name: nullable(TEXT) for name in ("principalTenant", "tenant", "detail")},
            "before": nullable(FREE),
            "after": nullable(FREE),
        },
    ),
    "AuditList": listing("AuditList", "AuditEntry"),
    "ServiceAttainment": record(
        "The SLO of a service: the share answered in time and the burn rate, by window",
        {
            "service": TEXT,
            **{name: nullable(NUMBER) for name in ("latencyMs", "ttftMs", "tpotMs", "budgetLeft")},
            "percentile": NUMBER,
            "attainment": SHARES,
            "burnRates": SHARES,
            "alarm": nullable(TEXT),
        },
    ),
    "AttainmentList": listing("AttainmentList", "ServiceAttainment", paged=False),
    "Token": record("A token without its secret", TOKEN),
    "TokenList": listing("TokenList", "Token"),
    "NewToken": record("A token with its secret", {**TOKEN, **SECRET}),
    "JoinToken": record(
        "A token with which a node joins once",
        {
            "id": TEXT,
            "node": nullable(TEXT),
            "createdBy": TEXT,
            "createdAt": MOMENT,
            "expiresAt": MOMENT,
            "state": {"enum": ["valid", "used", "expired"]},
            "usedAt": nullable(MOMENT),
            "usedBy": nullable(TEXT),
        },
    ),
    "JoinTokenList": listing("JoinTokenList", "JoinToken"),
    "NewJoinToken": record(
        "A join token with its secret", {"id": TEXT, "node": nullable(TEXT), "expiresAt": MOMENT, **SECRET}
    ),
    "NodeToken": record(
        "The token of a node", {"id": TEXT, "node": TEXT, "issuedAt": MOMENT, "expiresAt": nullable(MOMENT), **SECRET}
    ),
    "SignInLink": record("A link that signs a browser in once", {"path": TEXT, "seconds": NUMBER}),
    "Whoami": record(
        "The token of the caller",
        {
            "id": TEXT,
            "scope": TEXT,
            "tenant": nullable(TEXT),
            "node": nullable(TEXT),
            "expiresAt": nullable(MOMENT),
        },
    ),
    "MoneyOutlook": record(
        "Price of the GPUs that hold services, nodes to give back, GPUs worth renting; empty before the first plan",
        {},
        {"heldPerHour": NUMBER, "releasable": array("ReleasableNode"), "renting": component("RentingAdvice")},
    ),
    "RentingAdvice": record(
        "GPUs that would serve what is unserved",
        {
            "gpus": {"type": "object", "additionalProperties": WHOLE},
            "perHour": NUMBER,
            "serves": TEXTS,
            "inPart": TEXTS,
            "leaves": TEXTS,
            "message": TEXT,
        },
    ),
    "ReportDescription": record(
        "A report that may be asked for: its dimensions and figures",
        {"name": TEXT, "about": TEXT, "by": TEXTS, "values": TEXTS},
    ),
    "ReportList": listing("ReportList", "ReportDescription", paged=False),
    "MoneyReport": record(
        "A report; the figures of `total` and of each item are those that the list of reports names",
        {
            "kind": {"const": "Report"},
            "report": TEXT,
            "window": component("ReportWindow"),
            "timeZone": TEXT,
            "currency": TEXT,
            "by": TEXTS,
            "total": component("ReportTotal"),
            "items": array("ReportItem"),
        },
    ),
    "ReportWindow": record("The time that a report covers", {"start": MOMENT, "end": MOMENT}),
    "ReportTotal": {
        "type": "object",
        "description": "Sums by figure; empty where items are alternatives of each other",
        "additionalProperties": nullable(NUMBER),
    },
    "ReportItem": record(
        "A row of a report: its dimensions in `properties`, and its figures by name",
        {
            "name": TEXT,
            "properties": {"type": "object", "additionalProperties": {"type": ["string", "integer", "null"]}},
        },
        {"start": TEXT},
    )
    | {"additionalProperties": FIGURE},
    "Health": record("The process is alive", {"status": {"const": "ok"}}),
    "Readiness": record(
        "The database answers", {"status": {"const": "ready"}, "schema": TEXT, "resourceVersion": WHOLE}
    ),
}

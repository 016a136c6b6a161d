"""What-if: asks what a change would cost and leave unserved, with the limits of the API; nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from fastapi import APIRouter, Request, Response
from pydantic import ValidationError
from sqlalchemy import Connection

from app.access import AccessVerb, Noun, Principal, may, require
from app.api.answers.whatif import MOST_RATES, WhatIfRequest, answer_what_if
from app.api.requests import Ctx
from app.console.charts.front import draw_front
from app.console.charts.prices import draw_risks
from app.console.data import read_moves, read_planned
from app.console.forms import actor_of, form_token, read_form
from app.console.moves import MoveMap
from app.console.page_answer import show, shown_tenant
from app.console.visitor import Viewer
from app.context import Context
from app.control.answer.whatif.margins import describe_margins
from app.control.answer.whatif.move_points import describe_curve, find_few, list_distinct
from app.control.answer.whatif.wire import WhatIfAnswerWire
from app.manifests.model import Kind
from app.problem import HttpProblem
from app.store.database import clock
from app.store.fleet import load_points
from app.store.world import objects
from app.store.world.objects import Selection

router = APIRouter(include_in_schema=False)

MOST_SUGGESTED = 500
MOST_SERVICES = 100
SHOWN_AGAIN = (400, 404, 409, 422, 503)
LONG_SECONDS = 20.0  # for several plans: of risks, or between goals
BUTTONS = ("risks", "goals", "least", "tomorrow")
ASKED = ("service", "rate", "slo", "risk", "gpu", "count", "node")  # typed
EMPTY = dict.fromkeys((*BUTTONS, *ASKED), "")


@router.get("/what-if")
def what_if_page(request: Request, ctx: Ctx, who: Viewer) -> Response:
    return _show(request, ctx, who, EMPTY | {name: request.query_params.get(name, "")[:130] for name in EMPTY})


@router.post("/what-if")
def ask(request: Request, ctx: Ctx, who: Viewer) -> Response:
    """Answers the question on the page itself, so that what was asked stays in the form."""
    fields = {**EMPTY, **read_form(request, who)}
    require(who, Noun.WHAT_IF, AccessVerb.WRITE)
    try:
        question = _ask_tomorrow(ctx) if fields["tomorrow"] else _question(fields)
        found = answer_what_if(ctx, actor_of(request, who), question)
    except HttpProblem as problem:
        if problem.status not in SHOWN_AGAIN:
            raise
        return _show(request, ctx, who, fields, refused=problem)
    return _show(request, ctx, who, fields, found)


def _ask_tomorrow(ctx: Context) -> WhatIfRequest:
    """Returns the question whether the busiest hour of the last 7 days would fit, of all services at once."""
    rates = ctx.database.read(load_points.read_busiest_rates)
    if not rates:
        raise HttpProblem("invalid", "no service has had a request for a minute in the last 7 days")
    if len(rates) > MOST_RATES:
        raise HttpProblem("invalid", f"{len(rates)} services had requests; a what-if takes at most {MOST_RATES} rates")
    wanted = [f"{service}={rate:.6f}" for service, rate in rates.items()]
    return WhatIfRequest.model_validate({"plan": True, "rate": wanted})


def _question(fields: Mapping[str, str]) -> WhatIfRequest:
    """Returns the question of the form; refuses an empty or incomplete one in the form's own words."""
    service, gpu = fields["service"], fields["gpu"]
    if fields["risks"]:
        return WhatIfRequest.model_validate({"riskPrices": True, "seconds": LONG_SECONDS})
    if fields["goals"]:
        return WhatIfRequest.model_validate({"objective": True, "seconds": LONG_SECONDS})
    if fields["least"]:
        return WhatIfRequest.model_validate({"leastChange": True})
    if not service and (fields["rate"] or fields["slo"]):
        raise HttpProblem("invalid", "name the service whose rate or latency changes, as TENANT/NAME")
    if service and not (fields["rate"] or fields["slo"] or fields["risk"]):
        raise HttpProblem("invalid", f"give another rate, latency or risk for {service[:130]}")
    if bool(gpu) is not bool(fields["count"]):
        raise HttpProblem("invalid", "more GPUs need both their type and their number")
    question = {
        "rate": [f"{service}={fields['rate']}"] if fields["rate"] else [],
        "slo": [f"{service}={fields['slo']}"] if fields["slo"] else [],
        "risk": [f"{service}={fields['risk']}" if service else fields["risk"]] if fields["risk"] else [],
        "addGpu": [f"{gpu}={fields['count']}"] if gpu else [],
        "loseNode": [fields["node"]] if fields["node"] else [],
    }
    if not any(question.values()):
        raise HttpProblem(
            "invalid", "give at least one change: a rate, a latency, a risk, more GPUs or the loss of a node"
        )
    try:
        return WhatIfRequest.model_validate({**question, "plan": True})
    except ValidationError as error:
        raise HttpProblem("invalid", str(error.errors()[0]["msg"])) from None


def _show(
    request: Request, ctx: Ctx, who: Principal, fields: Mapping[str, str], found: WhatIfAnswerWire | None = None,
    refused: HttpProblem | None = None,
) -> Response:  # fmt: skip
    tenant = shown_tenant(who)
    asks = may(who, Noun.WHAT_IF, AccessVerb.WRITE)

    def read(connection: Connection) -> tuple[datetime, dict[str, list[str]], MoveMap | None]:
        moves = None
        if found and (after := found.get("plan")):
            moves = read_moves(connection, read_planned(connection, "").body, after)
        return clock.moment(connection), _names(connection) if asks and not tenant else {}, moves

    at, names, moves = ctx.database.read(read)
    points = found.get("leastChange", []) if found else []
    return show(
        request, who, "what_if.html", at, status=refused.status if refused else 200, fields=fields, found=found,
        pinned={name: fields[name] for name in ASKED}, seconds=WhatIfRequest().seconds, long_seconds=LONG_SECONDS,
        refused=refused, form=form_token(who) if asks else "", names=names,
        services=found["services"][:MOST_SERVICES] if found else [],
        risks=draw_risks(prices, ctx.settings.currency) if found and (prices := found.get("riskPrices")) else None,
        front=draw_front(plans, ctx.settings.currency) if found and (plans := found.get("front")) else None,
        margins=describe_margins(found.get("margins", [])) if found else [], is_answer=request.method == "POST",
        currency=ctx.settings.currency, curve=list_distinct(points), least=describe_curve(points),
        few=find_few(points) if points else None, moves=moves,
    )  # fmt: skip


def _names(connection: Connection) -> dict[str, list[str]]:
    """Returns the names that the form suggests, by its field."""
    kinds = {"service": Kind.SERVICE, "gpu": Kind.GPU_TYPE, "node": Kind.NODE}
    return {
        field: [known.key.full_name for known in objects.page(connection, Selection(kind), ("", ""), MOST_SUGGESTED)]
        for field, kind in kinds.items()
    }

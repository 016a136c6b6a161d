"""Answers what-ifs: other manifests, GPUs, SLOs, rates or risks; what they would cost and move. Stores nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from difflib import get_close_matches
from typing import Annotated, Literal

from fastapi import Query, Request
from pydantic import BaseModel, Field
from sqlalchemy import Connection

from app.access import AccessVerb, Noun, Principal, require
from app.api import requests
from app.api.answers import questions
from app.api.answers.solvers import call_solvers
from app.api.bodies import manifests
from app.api.replies import Reply, TypedRouter
from app.api.requests import By, Ctx, Who, answer
from app.context import Context
from app.control.answer.whatif.change import RateChange, WhatIfChange
from app.control.answer.whatif.wire import NoComparison, SloPriceWire, WhatIfAnswerWire
from app.control.domain.snapshot import DeclaredObject, Snapshot
from app.control.solve.aside import Aside
from app.manifests.model import Manifest
from app.manifests.quantities import MOST_RISK
from app.problem import HttpProblem
from app.store.fleet import loads
from app.world.declare import declare
from app.world.write import Actor

router = TypedRouter(prefix="/api/v1/whatif", tags=["whatif"])

MOST_SECONDS = 40.0
PRICE_SECONDS = 20.0
MEASURED_WITHIN = timedelta(hours=1)
MOST_GPUS = 10_000
MOST_RATES = 1000
SERVICE = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?/[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,6})?"


class WhatIfRequest(BaseModel):
    """The query parameters of a what-if."""

    add_gpu: Annotated[
        list[str], Field(alias="addGpu", max_length=50, description="a100-sxm4-80gb=4: four more GPUs")
    ] = []
    slo: Annotated[list[str], Field(max_length=100, description="shop/search=80ms")] = []
    rate: Annotated[list[str], Field(max_length=MOST_RATES, description="shop/search=x2, or =500")] = []
    risk: Annotated[
        list[str], Field(max_length=100, description="0.02: the Policy's risk; shop/search=0.02: a service's")
    ] = []
    lose_node: Annotated[
        list[str], Field(alias="loseNode", max_length=50, description="The name of a node that is gone")
    ] = []
    planner: Annotated[
        Literal[
            "", "joint", "hetsev", "mudi", "inss", "morak", "oltunes", "hpa", "hpa-cheapest", "reserve-and-pack",
            "melange", "largest", "one-per-gpu", "time-sliced",
        ],
        Field(description="Planner of the changed fleet, not the policy's; also those that no policy may name"),
    ] = ""  # fmt: skip
    price_slo: Annotated[
        list[str], Field(alias="priceSlo", max_length=100, description="Price the SLO of this service")
    ] = []
    price_slos: Annotated[bool, Field(alias="priceSlos", description="What each SLO costs per hour")] = False
    risk_prices: Annotated[bool, Field(alias="riskPrices", description="What the fleet costs at six risks")] = False
    objective: Annotated[bool, Field(description="Plans between money, energy, carbon and accuracy")] = False
    least_change: Annotated[
        bool,
        Field(alias="leastChange", description="The least change beside the best plan, also where nothing is changed"),
    ] = False
    divide: Annotated[bool, Field(description="Which GPUs to divide into MIG devices, and in which order")] = False
    seconds: Annotated[float, Field(gt=0, le=MOST_SECONDS, description="For both plans together")] = 6.0
    work: Annotated[
        int | None, Field(ge=0, le=100_000, description="Steps of each search: the same result on any machine")
    ] = None
    plan: Annotated[bool, Field(description="Include the whole plan in the answer")] = False


@router.post("", summary="What a change would cost, move and do to each service; changes nothing")
def what_if(
    request: Request, ctx: Ctx, who: Who, by: By, body: requests.Body, query: Annotated[WhatIfRequest, Query()]
) -> Reply[WhatIfAnswerWire]:
    """The body is that of an apply, or empty; it is checked as an apply checks it."""
    require(who, Noun.WHAT_IF, AccessVerb.WRITE)
    wanted = manifests(request, body) if body.strip() else []
    return answer(answer_what_if(ctx, by, query, wanted))


def answer_what_if(ctx: Context, by: Actor, query: WhatIfRequest, wanted: Sequence[Manifest] = ()) -> WhatIfAnswerWire:
    """Returns the comparison; refuses unknown names, and what no plan could be found for."""
    require(by.principal, Noun.WHAT_IF, AccessVerb.WRITE)
    change = _parse_change(query, wanted)

    def read(connection: Connection) -> tuple[Snapshot, dict[str, float]]:
        if wanted:
            declare(connection, by, wanted, dry_run=True, currency=ctx.settings.currency)
        snapshot = call_solvers(lambda: questions.read_now(connection))
        known = {declared.full_name for declared in snapshot.declared if declared.kind == "Service"}
        known |= {f"{manifest.tenant}/{manifest.name}" for manifest in wanted if manifest.kind == "Service"}
        for name in (*change.slos_ms, *change.rates, *change.risks, *query.price_slo):
            if name not in known:
                near = get_close_matches(name, known, n=1)
                meant = f"; did you mean {near[0]}?" if near else ""
                raise HttpProblem("not-found", f"there is no service {name}{meant}")
        nodes = {declared.name for declared in snapshot.declared if declared.kind == "Node"}
        for _, _, name in change.gone:
            if name not in nodes:
                raise HttpProblem("not-found", f"there is no node {name}")
        return snapshot, _count_answers(connection) if query.price_slo else {}

    snapshot, measured = ctx.database.read(read)

    def order() -> Aside[WhatIfAnswerWire | NoComparison]:
        from app.control.answer.whatif.question import WhatIf

        prices: Sequence[str] | None = tuple(query.price_slo) if query.price_slos or query.price_slo else None
        return WhatIf(
            snapshot,
            change,
            query.seconds,
            query.work,
            0,
            prices,
            query.plan,
            query.objective,
            query.risk_prices,
            measured,
            query.least_change,
            query.divide,
        )

    comparison = questions.ask(ctx, by.principal, call_solvers(order), query.seconds)
    if "failed" in comparison:
        raise _refuse(comparison)
    return comparison


def slo_price(ctx: Context, who: Principal, service: str) -> SloPriceWire | None:
    """Returns what the SLO of a service costs per hour, also shorter, longer and at other percentiles, in the time."""
    require(who, Noun.WHAT_IF, AccessVerb.WRITE)

    def read(connection: Connection) -> tuple[Snapshot, dict[str, float]]:
        return call_solvers(lambda: questions.read_now(connection)), _count_answers(connection)

    snapshot, measured = ctx.database.read(read)

    def order() -> Aside[WhatIfAnswerWire | NoComparison]:
        from app.control.answer.whatif.question import WhatIf

        return WhatIf(snapshot, WhatIfChange(), PRICE_SECONDS, None, 0, (service,), measured=measured)

    comparison = questions.ask(ctx, who, call_solvers(order), PRICE_SECONDS)
    if "failed" in comparison:
        raise _refuse(comparison)
    return next(iter(comparison["sloPrices"]), None)


def _count_answers(connection: Connection) -> dict[str, float]:
    """Returns by service how many answers were timed in the last hour."""
    return {window.service: window.answers for window in loads.answers_within(connection, MEASURED_WITHIN)}


def _refuse(none: NoComparison) -> HttpProblem:
    if none["refused"]:
        return HttpProblem("invalid", none["failed"])
    return HttpProblem("unavailable", f"the solver found no plan: {none['failed']}")


def _parse_change(query: WhatIfRequest, wanted: Sequence[Manifest]) -> WhatIfChange:
    gpus = {name: _count(text) for name, text in _pairs(query.add_gpu, "addGpu", r"[-a-z0-9]{1,63}")}
    if sum(gpus.values()) > MOST_GPUS:
        raise HttpProblem("bad-request", f"addGpu adds {sum(gpus.values())} GPUs; allowed: {MOST_GPUS} together")
    slos = {name: _ms(text) for name, text in _pairs(query.slo, "slo", SERVICE)}
    rates = {name: _rate(text) for name, text in _pairs(query.rate, "rate", SERVICE)}
    risks = {name: _risk(text) for name, text in _pairs([text for text in query.risk if "=" in text], "risk", SERVICE)}
    of_policy = [_risk(text) for text in query.risk if "=" not in text]
    if len(of_policy) > 1:
        raise HttpProblem("bad-request", f"risk is given {len(of_policy)} times for all services; allowed: once")
    if both := sorted(rates.keys() & risks.keys()):
        raise HttpProblem(
            "bad-request", f"{both[0]} is given a rate and a risk, but a given rate has no margin: ask apart"
        )
    gone = tuple(("Node", "", name) for name in dict.fromkeys(query.lose_node))
    risk = of_policy[0] if of_policy else None
    return WhatIfChange(_declare(wanted), gone, gpus, slos, rates, query.planner, risk, risks)


def _declare(wanted: Sequence[Manifest]) -> tuple[DeclaredObject, ...]:
    return tuple(DeclaredObject(str(known.kind), known.tenant, known.name, known.spec) for known in wanted)


def _pairs(given: Sequence[str], what: str, form: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or re.fullmatch(form, name) is None:
            allowed = "TENANT/NAME=VALUE" if form is SERVICE else "NAME=VALUE"
            raise HttpProblem("bad-request", f"{what} {text[:80]!r} is not understood; allowed: {allowed}")
        if form is SERVICE and name in dict(found):
            raise HttpProblem("bad-request", f"{what} is given twice for {name}; allowed: once")
        found.append((name, value))
    return found


def _count(text: str) -> int:
    if re.fullmatch(r"[0-9]{1,6}", text) is None or not 1 <= int(text) <= MOST_GPUS:
        raise HttpProblem("bad-request", f"addGpu {text[:40]!r}: allowed are whole numbers from 1 to {MOST_GPUS}")
    return int(text)


def _ms(text: str) -> float:
    match = re.fullmatch(rf"({NUMBER})(ms|s)?", text)
    value = float(match[1]) * (1000 if match[2] == "s" else 1) if match else 0.0
    if not 0 < value <= 1e7:
        raise HttpProblem("bad-request", f"slo {text[:40]!r}: allowed are times above 0, like 80ms or 1.5s")
    return value


def _risk(text: str) -> float:
    value = float(text) if re.fullmatch(NUMBER, text) else 0.0
    if not 0 < value <= MOST_RISK:
        allowed = f"above 0 and at most {MOST_RISK:g}, like 0.05 for 5 % of hours"
        raise HttpProblem("bad-request", f"risk {text[:40]!r}: allowed are shares of hours {allowed}")
    return value


def _rate(text: str) -> RateChange:
    match = re.fullmatch(rf"(x?)({NUMBER})", text)
    value = float(match[2]) if match else 0.0
    if match is None or not 0 < value <= 1e9:
        turned = re.fullmatch(rf"({NUMBER})x", text)
        meant = f"; did you mean `x{turned[1]}`?" if turned else ""
        raise HttpProblem("bad-request", f"rate {text[:40]!r}: allowed are factors like x2, or a rate like 500{meant}")
    return RateChange(times=value) if match[1] else RateChange(per_second=value)

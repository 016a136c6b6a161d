"""What if: other manifests, more GPUs, other SLOs or rates; what it would cost and move. Nothing is stored."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from sqlalchemy import Connection

from app.access import AccessVerb, Noun, require
from app.api import questions, requests
from app.api.bodies import manifests
from app.api.requests import By, Ctx, Who, answer
from app.api.solvers import with_solvers
from app.control.answer.whatif.change import RateChange, WhatIfChange
from app.control.domain.snapshot import DeclaredObject, Snapshot
from app.manifests.model import Manifest
from app.problem import HttpProblem
from app.world.declare import declare

router = APIRouter(prefix="/api/v1/whatif", tags=["whatif"])

MOST_SECONDS = 40.0
MOST_GPUS = 10_000
SERVICE = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?/[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,6})?"


@router.post("", summary="What a change would cost, move and do to each service; touches nothing")
def what_if(
    request: Request,
    ctx: Ctx,
    who: Who,
    by: By,
    body: requests.Body,
    add_gpu: Annotated[
        list[str], Query(alias="addGpu", max_length=50, default_factory=list, description="a100=4: so many more")
    ],
    slo: Annotated[list[str], Query(max_length=100, default_factory=list, description="shop/search=80ms")],
    rate: Annotated[list[str], Query(max_length=100, default_factory=list, description="shop/search=x2, or =500")],
    price_slo: Annotated[
        list[str], Query(alias="priceSlo", max_length=100, default_factory=list, description="Of this service")
    ],
    price_slos: Annotated[bool, Query(alias="priceSlos", description="What each SLO costs an hour")] = False,
    seconds: Annotated[float, Query(gt=0, le=MOST_SECONDS, description="For both plans together")] = 6.0,
    work: Annotated[int | None, Query(ge=0, le=100_000, description="Steps of each search: the same anywhere")] = None,
    plan: Annotated[bool, Query(description="Answer with the whole plan, too")] = False,
) -> Response:
    """The body is that of an apply, or empty; what it declares is checked as an apply would check it."""
    require(who, Noun.WHAT_IF, AccessVerb.WRITE)
    wanted = manifests(request, body) if body.strip() else []
    gpus = {name: _count(text) for name, text in _pairs(add_gpu, "addGpu", r"[-a-z0-9]{1,63}")}
    if sum(gpus.values()) > MOST_GPUS:
        raise HttpProblem("bad-request", f"addGpu asks for {sum(gpus.values())} GPUs; allowed are {MOST_GPUS} together")
    slos = {name: _ms(text) for name, text in _pairs(slo, "slo", SERVICE)}
    rates = {name: _rate(text) for name, text in _pairs(rate, "rate", SERVICE)}

    def read(connection: Connection) -> tuple[Snapshot, WhatIfChange]:
        if wanted:
            declare(connection, by, wanted, dry_run=True, currency=ctx.settings.currency)
        snapshot = with_solvers(lambda: questions.read_now(connection))
        known = {f"{one.tenant}/{one.name}" for one in snapshot.declared if one.kind == "Service"}
        known |= {f"{one.tenant}/{one.name}" for one in wanted if one.kind == "Service"}
        for name in (*slos, *rates, *price_slo):
            if name not in known:
                raise HttpProblem("not-found", f"there is no service {name}")
        return snapshot, WhatIfChange(_declared(wanted), (), gpus, slos, rates)

    snapshot, change = ctx.database.read(read)

    def order() -> Any:
        from app.control.answer.whatif.asked import WhatIf

        prices: Sequence[str] | None = tuple(price_slo) if price_slos or price_slo else None
        return WhatIf(snapshot, change, seconds, work, 0, prices, plan)

    said: dict[str, Any] = questions.ask(ctx, who, with_solvers(order), seconds)
    if said.get("refused"):
        raise HttpProblem("invalid", said["failed"])
    if "failed" in said:
        raise HttpProblem("unavailable", f"no plan was found: {said['failed']}")
    return answer(said)


def _declared(wanted: Sequence[Manifest]) -> tuple[DeclaredObject, ...]:
    return tuple(DeclaredObject(str(one.kind), one.tenant, one.name, one.spec) for one in wanted)


def _pairs(given: Sequence[str], what: str, form: str) -> list[tuple[str, str]]:
    found = []
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or re.fullmatch(form, name) is None:
            allowed = "TENANT/NAME=VALUE" if form is SERVICE else "NAME=VALUE"
            raise HttpProblem("bad-request", f"{what} {text[:80]!r} is not understood: allowed is {allowed}")
        found.append((name, value))
    return found


def _count(text: str) -> int:
    if re.fullmatch(r"[0-9]{1,6}", text) is None or not 1 <= int(text) <= MOST_GPUS:
        raise HttpProblem("bad-request", f"addGpu {text[:40]!r}: allowed is a whole number of 1 to {MOST_GPUS}")
    return int(text)


def _ms(text: str) -> float:
    match = re.fullmatch(rf"({NUMBER})(ms|s)?", text)
    value = float(match[1]) * (1000 if match[2] == "s" else 1) if match else 0.0
    if not 0 < value <= 1e7:
        raise HttpProblem("bad-request", f"slo {text[:40]!r}: allowed is a time over 0, like 80ms or 1.5s")
    return value


def _rate(text: str) -> RateChange:
    match = re.fullmatch(rf"(x?)({NUMBER})", text)
    value = float(match[2]) if match else 0.0
    if match is None or not 0 < value <= 1e9:
        raise HttpProblem("bad-request", f"rate {text[:40]!r}: allowed is x2 for twice as much, or 500 a second")
    return RateChange(times=value) if match[1] else RateChange(per_second=value)

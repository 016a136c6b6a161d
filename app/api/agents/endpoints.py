"""Tells gateways which copies serve which service, and takes their counts."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import Path, Query

from agents.contract.fields import LONGEST_POLL_SECONDS
from agents.contract.gateways import CountsTaken, Endpoints, GatewayCounts
from app.access import AccessVerb, Noun, require
from app.api.replies import Reply, TypedRouter, takes
from app.api.requests import JSON, Body, Ctx, Who, answer
from app.manifests.faults import ManifestFault
from app.nodes.refused_copies import RefusedCopy, record_refused
from app.problem import HttpProblem
from app.store.fleet import gateways

router = TypedRouter(prefix="/api/v1", tags=["gateways"])

NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
SERVICE = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_counts = msgspec.json.Decoder(GatewayCounts)


@router.get(
    "/endpoints",
    summary="The copies of every service, once they are newer than `after`",
    responses={204: {"description": "Nothing new"}},
)
async def endpoints(
    ctx: Ctx,
    who: Who,
    after: Annotated[int, Query(ge=0, lt=2**62, description="The version that the gateway has; 0 for none")] = 0,
    wait_seconds: Annotated[float, Query(alias="waitSeconds", ge=0, le=LONGEST_POLL_SECONDS)] = 0.0,
    service: Annotated[str, Query(max_length=127, pattern=SERVICE, description="TENANT/NAME")] = "",
) -> Reply[Endpoints]:
    """A tenant sees its own services, without addresses."""
    require(who, Noun.ENDPOINTS, AccessVerb.READ)
    body = await ctx.nodes.endpoints.wait(who, after, wait_seconds, service)
    return Reply(status_code=204) if body is None else Reply(body, media_type=JSON)


@router.put(
    "/gateways/{name}/counts",
    summary="What a gateway has counted since it started; stored when answered",
    openapi_extra=takes(GatewayCounts),
)
async def counts(
    ctx: Ctx, who: Who, name: Annotated[str, Path(max_length=63, pattern=NAME)], raw: Body
) -> Reply[CountsTaken]:
    """Only the newest counts matter: older or repeated ones change nothing and are answered with the newest."""
    require(who, Noun.GATEWAY_COUNTS, AccessVerb.WRITE, name)
    sent = _read(raw)
    newest = await ctx.nodes.lane.repeatable(lambda connection: gateways.keep(connection, name, sent))
    if sent.left_out:
        refused = [RefusedCopy(route.copy, f"node {route.node}: {route.reason}") for route in sent.left_out]
        await record_refused(ctx.nodes.lane, {name: refused}, "Gateway")
    return answer(CountsTaken(newest))


def _read(raw: bytes) -> GatewayCounts:
    """Returns the counts of a gateway; 422 for anything that must not reach the database or a solver."""
    try:
        sent = _counts.decode(raw)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        raise _refuse(path.strip("`.") or "counts", message) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _refuse("counts", str(error)) from None
    except RecursionError:
        raise _refuse("counts", "nested too deeply") from None
    for line in sent.services:
        answered = max(sum(line.latency_counts), line.timed)
        if line.errors > line.requests or line.shed > line.errors or answered > line.requests:
            raise _refuse("services", f"{line.service}: its errors or latencies outnumber its requests")
    if len({line.service for line in sent.services}) != len(sent.services):
        raise _refuse("services", "a service occurs twice")
    return sent


def _refuse(field: str, message: str) -> HttpProblem:
    return HttpProblem(
        "invalid", "the counts were not stored", faults=[ManifestFault(document="counts", field=field, message=message)]
    )

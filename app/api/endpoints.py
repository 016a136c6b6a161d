"""Which copies serve which service: what a gateway follows, and what it has counted since."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path, Query, Response
from starlette.concurrency import run_in_threadpool

from agents.contract import LONGEST_POLL_SECONDS, CountsTaken, Endpoints, GatewayCounts
from app.access import AccessVerb, Noun, require
from app.api.requests import JSON, Body, Ctx, Who
from app.manifests.faults import ManifestFault
from app.problem import HttpProblem
from app.store.fleet import gateways

router = APIRouter(prefix="/api/v1", tags=["gateways"])

NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
SERVICE = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_counts = msgspec.json.Decoder(GatewayCounts)


def _schema(kind: type) -> dict[str, Any]:
    (schema,), _ = msgspec.json.schema_components([kind], ref_template="#/components/schemas/{name}")
    return schema


def schemas() -> dict[str, Any]:
    """The components that the routes here refer to."""
    kinds = [Endpoints, GatewayCounts, CountsTaken]
    _, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    return components


@router.get(
    "/endpoints",
    summary="The copies of every service, once they are newer than `after`",
    responses={
        200: {"content": {JSON: {"schema": _schema(Endpoints)}}},
        204: {"description": "Nothing new"},
    },
)
async def endpoints(
    ctx: Ctx,
    who: Who,
    after: Annotated[int, Query(ge=0, lt=2**62, description="The version that is known; 0 for none")] = 0,
    wait_seconds: Annotated[float, Query(alias="waitSeconds", ge=0, le=LONGEST_POLL_SECONDS)] = 0.0,
    service: Annotated[str, Query(max_length=127, pattern=SERVICE, description="TENANT/NAME")] = "",
) -> Response:
    """A tenant is told of its own services, without addresses."""
    require(who, Noun.ENDPOINTS, AccessVerb.READ)
    body = await ctx.nodes.endpoints.wait(who, after, wait_seconds, service)
    return Response(status_code=204) if body is None else Response(body, media_type=JSON)


@router.put(
    "/gateways/{name}/counts",
    summary="What a gateway has counted since it began; stored when answered",
    openapi_extra={
        "requestBody": {"required": True, "content": {JSON: {"schema": _schema(GatewayCounts)}}},
        "responses": {"200": {"description": "Stored", "content": {JSON: {"schema": _schema(CountsTaken)}}}},
    },
)
async def counts(ctx: Ctx, who: Who, name: Annotated[str, Path(max_length=63, pattern=NAME)], raw: Body) -> Response:
    """The newest word counts: one that comes late or twice changes nothing, and is answered with the newest."""
    require(who, Noun.GATEWAY_COUNTS, AccessVerb.WRITE, name)
    told = _read(raw)
    kept = await run_in_threadpool(ctx.database.repeatable, lambda connection: gateways.keep(connection, name, told))
    return Response(msgspec.json.encode(CountsTaken(kept)), media_type=JSON)


def _read(raw: bytes) -> GatewayCounts:
    """What a gateway says; 422 for anything that must not reach the database, or a solver."""
    try:
        told = _counts.decode(raw)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        raise _refused(path.strip("`.") or "counts", message) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _refused("counts", str(error)) from None
    except RecursionError:
        raise _refused("counts", "nested too deeply") from None
    for one in told.services:
        if one.errors > one.requests or one.shed > one.errors or max(sum(one.latency_counts), one.timed) > one.requests:
            raise _refused("services", f"{one.service}: more is told of its requests than there were")
    if len({one.service for one in told.services}) != len(told.services):
        raise _refused("services", "a service is there twice")
    return told


def _refused(field: str, message: str) -> HttpProblem:
    return HttpProblem(
        "invalid", "the counts were not kept", faults=[ManifestFault(document="counts", field=field, message=message)]
    )

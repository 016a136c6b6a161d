"""Keeps plans off nodes and GPUs: cordon, uncordon, drain, and notices that a node will be reclaimed.

The planner moves what runs there, or says why it cannot.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Literal, TypedDict, TypeVar

import msgspec
from fastapi import Query, Request
from sqlalchemy import Connection

from agents.contract.fields import LONGEST_NOTICE_SECONDS
from app.access import AccessVerb, Noun, require
from app.api import requests
from app.api.objects import Name
from app.api.replies import Reply, TypedRouter, takes
from app.api.requests import By, Ctx, Who, answer, write_once
from app.control.domain.events import Reason, event_of
from app.manifests.model import Key, Kind
from app.problem import HttpProblem
from app.store.database import clock
from app.store.fleet import campaigns, cordons, reclaims
from app.store.fleet.cordons import CordonWire
from app.store.world import audit, events, objects
from app.store.world.objects import StoredObject
from app.world import declare, notices
from app.world.write import Actor

router = TypedRouter(prefix="/api/v1", tags=["cordons"])

T = TypeVar("T")
LONGEST_DRAIN = timedelta(days=3650)  # of a drain; later moments cannot be represented everywhere
LONGEST_NOTICE = timedelta(seconds=LONGEST_NOTICE_SECONDS)


class CordonListWire(TypedDict):
    """A list of Cordon objects."""

    kind: Literal["CordonList"]
    items: list[CordonWire]


class CordonRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The body of a cordon or drain: GPU, deadline and message; by default all GPUs of the node, without a deadline."""

    gpu: Annotated[int, msgspec.Meta(ge=0, le=1023)] | None = None
    deadline: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    message: Annotated[str, msgspec.Meta(max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$(?!\n)")] = ""


class ReclaimRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The body of a notice of reclaim: when the cloud takes the node back, or in how many seconds, and a message."""

    deadline: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    seconds: Annotated[float, msgspec.Meta(gt=0, le=LONGEST_NOTICE_SECONDS)] | None = None
    message: Annotated[str, msgspec.Meta(max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$(?!\n)")] = ""


_asking = msgspec.json.Decoder(CordonRequest)
_reclaiming = msgspec.json.Decoder(ReclaimRequest)


@router.get("/cordons", summary="Nodes and GPUs that are cordoned or drained")
def list_cordons(
    ctx: Ctx, who: Who, node: Annotated[str, Query(max_length=63, description="Only those of this node")] = ""
) -> Reply[CordonListWire]:  # fmt: skip
    require(who, Noun.CORDON, AccessVerb.READ)
    found = ctx.database.read(lambda connection: cordons.list_cordons(connection, node))
    return answer({"kind": "CordonList", "items": [cordoned.wire() for cordoned in found]})


@router.post(
    "/nodes/{name}/cordon",
    summary="Place nothing new on a node or on a single GPU",
    openapi_extra=takes(CordonRequest, required=False),
)
def cordon(request: Request, who: Who, by: By, body: requests.Body, name: Name) -> Reply[CordonWire]:
    return _put(request, who, by, body, name, "cordon")


@router.post(
    "/nodes/{name}/drain",
    summary="Move everything off a node or a single GPU, make before break",
    openapi_extra=takes(CordonRequest, required=False),
)
def drain(request: Request, who: Who, by: By, body: requests.Body, name: Name) -> Reply[CordonWire]:
    """Drains a node or GPU. What cannot leave stays; events and `gpuwright explain` name it and the reason."""
    return _put(request, who, by, body, name, "drain")


@router.post(
    "/nodes/{name}/uncordon",
    summary="Let plans use a node or a GPU again",
    openapi_extra=takes(CordonRequest, required=False),
)
def uncordon(request: Request, who: Who, by: By, body: requests.Body, name: Name) -> Reply[CordonListWire]:
    """Without `gpu`, uncordons the node and all its GPUs."""
    require(who, Noun.CORDON, AccessVerb.WRITE)
    given = _read(body)
    return write_once(request, body, lambda connection: answer(lift(connection, by, name, given)))


@router.post(
    "/nodes/{name}/reclaim", summary="Give notice that the cloud takes a node back", openapi_extra=takes(ReclaimRequest)
)
def reclaim(request: Request, who: Who, by: By, body: requests.Body, name: Name) -> Reply[CordonWire]:
    """Everything leaves the node before the deadline, new copies first. What cannot is named by events."""
    require(who, Noun.CORDON, AccessVerb.WRITE)
    given = _decode(_reclaiming, body)
    if (given.deadline is None) is (given.seconds is None):
        raise HttpProblem("invalid", "the body needs either `deadline` or `seconds`")

    def write(connection: Connection) -> Reply[CordonWire]:
        _existing(connection, name)
        deadline = given.deadline or clock.now(connection) + timedelta(seconds=given.seconds or 0.0)
        _check_deadline(connection, deadline, LONGEST_NOTICE, "drain the node by a deadline instead")
        notices.give_notice(connection, by, name, "request", deadline, given.message)
        made = reclaims.read_in_force(connection, name)
        assert made is not None
        return answer(made.wire())

    return write_once(request, body, write)


@router.delete("/nodes/{name}/reclaim", summary="Withdraw the notice that a node will be reclaimed")
def withdraw_reclaim(request: Request, who: Who, by: By, body: requests.Body, name: Name) -> Reply[CordonWire]:
    """Plans may use the node again. What its agent still reports stays withdrawn, until it names another deadline."""
    require(who, Noun.CORDON, AccessVerb.WRITE)

    def write(connection: Connection) -> Reply[CordonWire]:
        _existing(connection, name)
        before = notices.withdraw_notice(connection, by, name)
        if before is None:
            raise HttpProblem("not-found", f"node {name} is under no notice of reclaim")
        return answer(before.wire())

    return write_once(request, body, write)


def _refuse_to_lift(connection: Connection, name: str, gpu: int | None) -> None:
    """Raises what keeps plans off, where that is no cordon of the place that was named."""
    there = cordons.list_cordons(connection, name)
    reserved = [found for found in there if found.mode == cordons.PROFILE and gpu in (None, found.gpu)]
    if reserved:
        campaign = campaigns.live_by_node(connection)[name]
        raise HttpProblem(
            "conflict",
            f"{_name_place(name, reserved[0].gpu)} is measured; end that: gpuwright profile --stop {campaign}",
        )
    if gpu is not None and any(found.gpu == cordons.ALL_GPUS and found.mode not in cordons.NOTICES for found in there):
        raise HttpProblem("conflict", f"the whole node {name} is cordoned; uncordon the node, then cordon single GPUs")
    notice = reclaims.read_in_force(connection, name)
    if notice and notice.mode == cordons.CLUSTER:
        raise HttpProblem("conflict", f"node {name} is unschedulable in its cluster; there: kubectl uncordon {name}")
    if notice:
        raise HttpProblem(
            "conflict", f"node {name} is under notice of reclaim; withdraw it: gpuwright reclaim {name} --withdraw"
        )


def _put(
    request: Request, who: Who, by: By, body: bytes, name: str, mode: Literal["cordon", "drain"]
) -> Reply[CordonWire]:  # fmt: skip
    require(who, Noun.CORDON, AccessVerb.WRITE)
    given = _read(body)
    return write_once(request, body, lambda connection: answer(place(connection, by, name, mode, given)))


def place(
    connection: Connection, by: Actor, name: str, mode: Literal["cordon", "drain"], given: CordonRequest
) -> CordonWire:
    """Keeps plans off a node or a GPU of it, or moves away what runs there; returns the cordon."""
    require(by.principal, Noun.CORDON, AccessVerb.WRITE)
    if mode == "cordon" and given.deadline is not None:
        raise HttpProblem("bad-request", "a cordon has no deadline; drain the node to empty it by a deadline")
    gpus = int(_existing(connection, name).spec["gpus"])
    if given.gpu is not None and given.gpu >= gpus:
        raise HttpProblem("invalid", f"node {name} has {gpus} GPUs, 0 to {gpus - 1}; there is no GPU {given.gpu}")
    if given.deadline is not None:
        _check_deadline(connection, given.deadline, LONGEST_DRAIN)
    gpu = cordons.ALL_GPUS if given.gpu is None else given.gpu
    made = cordons.put(connection, name, gpu, mode, given.deadline, by.principal.id, given.message)
    audit.record(connection, [by.entry(mode, Noun.CORDON, name=name, after=made.wire())])
    if mode == "cordon":  # for a drain the leader reports how much has to leave
        why = f": {given.message}" if given.message else ""
        message = f"{_name_place(name, given.gpu)} gets no new instances or jobs{why}"
        events.record(connection, [event_of(Reason.CORDON, message, kind="Node", name=name, about=str(given.gpu))])
    return made.wire()


def lift(connection: Connection, by: Actor, name: str, given: CordonRequest) -> CordonListWire:
    """Lets plans use a node or a GPU of it again; returns the cordons that are gone."""
    require(by.principal, Noun.CORDON, AccessVerb.WRITE)
    lifted = cordons.lift(connection, name, cordons.ALL_GPUS if given.gpu is None else given.gpu)
    if not lifted:
        _existing(connection, name)
        _refuse_to_lift(connection, name, given.gpu)
        raise HttpProblem("not-found", f"{_name_place(name, given.gpu)} is not cordoned")
    wires = [cordoned.wire() for cordoned in lifted]
    audit.record(connection, [by.entry("uncordon", Noun.CORDON, name=name, before={"cordons": wires})])
    message = f"{_name_place(name, given.gpu)} may be used again"
    events.record(connection, [event_of(Reason.UNCORDON, message, kind="Node", name=name, about=str(given.gpu))])
    return {"kind": "CordonList", "items": wires}


def _existing(connection: Connection, name: str) -> StoredObject:
    node = objects.get(connection, Key(Kind.NODE, "", name))
    if node is None:
        raise declare.missing(Key(Kind.NODE, "", name))
    return node


def _check_deadline(connection: Connection, deadline: datetime, longest: timedelta, advice: str = "") -> None:
    """Refuses a deadline that has passed or is too far away."""
    time_left = deadline - clock.now(connection)
    if time_left <= timedelta():
        raise HttpProblem("invalid", f"the deadline {deadline.isoformat()} has passed")
    if time_left > longest:
        span = f"{longest.days} days" if longest.days > 1 else f"{longest // timedelta(hours=1)} hours"
        detail = f"the deadline {deadline.isoformat()} is more than {span} away"
        raise HttpProblem("invalid", f"{detail}; {advice}" if advice else detail)


def _read(body: bytes) -> CordonRequest:
    return _decode(_asking, body) if body.strip() else CordonRequest()


def _decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise HttpProblem("invalid", f"the body is not a valid request: {error}") from None


def _name_place(node: str, gpu: int | None) -> str:
    return f"node {node}" if gpu is None else f"GPU {gpu} of node {node}"

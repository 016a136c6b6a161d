"""Profiling campaigns: asked for, followed and stopped; and the nodes that measure for them."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypeAlias, TypedDict, cast

import msgspec
from fastapi import Body, Path, Query, Request
from sqlalchemy import Connection

from agents.contract.campaigns import CopySetting, MeasuredSetting, ProfilingAnswer, ProfilingReport
from app.access import AccessVerb, Noun, require
from app.api import requests
from app.api.answers.solvers import call_solvers
from app.api.campaigns.campaign_requests import CampaignBody, campaign_draft
from app.api.objects import Name
from app.api.replies import Reply, TypedRouter, takes, write_row
from app.api.requests import By, Ctx, NoBody, Who, answer, context, write_once
from app.campaigns import guard
from app.campaigns.ending import finish
from app.control.domain.events import Reason, event_of
from app.manifests.drafts import find_error_goal
from app.manifests.model import Free, Kind
from app.problem import HttpProblem
from app.store.fleet import campaigns
from app.store.fleet.campaigns import Campaign, SettingFailure
from app.store.world import audit, events, objects
from app.store.world.slos import list_unserved
from app.wire import MomentText

router = TypedRouter(prefix="/api/v1", tags=["campaigns"])

MOST_LISTED = 1000
MadeProfile: TypeAlias = Annotated[
    Free, msgspec.Meta(extra_json_schema={"$ref": "#/components/schemas/ProfileManifest"})
]
CampaignId = Annotated[str, Path(max_length=40, pattern=r"^[a-z0-9-]+$")]
_report = msgspec.json.Decoder(ProfilingReport)


class CampaignWire(TypedDict):
    """Measurements of a model on a GPU."""

    id: str
    node: str
    gpuType: str
    model: str
    variant: str
    state: str
    askedBy: str
    gpu: int
    most: int
    measured: int
    reason: str | None
    message: str | None
    accuracy: float | None
    failures: tuple[SettingFailure, ...]
    batches: list[int]
    smPercents: list[float]
    neighbours: list[str]
    clocksMhz: list[float]
    askedAt: MomentText
    beganAt: MomentText | None
    endedAt: MomentText | None


class CampaignListWire(TypedDict):
    """A list of Campaign objects."""

    kind: Literal["CampaignList"]
    items: list[CampaignWire]


class CampaignDetailWire(CampaignWire):
    """A campaign with its measurements; at its end the Profiles that they make."""

    measurements: list[MeasuredSetting]
    leftOutError: float | None
    profiles: list[MadeProfile]
    secondsLeft: NotRequired[float]
    nextSetting: NotRequired[CopySetting]


@router.post("/campaigns", status_code=201, summary="Measure a model on a GPU of a node")
def create_campaign(
    request: Request, who: Who, by: By, wanted: Annotated[CampaignBody, Body()], raw: requests.Body
) -> Reply[CampaignWire]:
    """The GPU is emptied as by a drain, and stays reserved until the campaign ends. Nothing unserved comes of it."""
    require(who, Noun.CAMPAIGN, AccessVerb.WRITE)
    call_solvers(_import_solvers)

    def create(connection: Connection) -> Reply[CampaignWire]:
        draft = campaign_draft(connection, wanted)
        node = draft.node
        watched = guard.services_on(connection, node)
        if harm := guard.find_missed(connection, guard.attainments(connection, watched)):
            raise HttpProblem("conflict", f"a campaign would disturb what serves on node {node}: {harm}")
        whole = msgspec.structs.replace(
            draft.request, watched=tuple(sorted(watched)), unserved=tuple(list_unserved(connection))
        )
        made = campaigns.insert(connection, draft._replace(request=whole), who.id)
        if made is None:
            raise HttpProblem("conflict", f"node {node} measures for another campaign; see: gpuwright profile --list")
        shown = _head(made)
        audit.record(connection, [by.entry("create", Noun.CAMPAIGN, name=made.id, after=shown)])
        message = f"campaign {made.id} measures {made.model}/{made.variant} on GPU {made.gpu}"
        events.record(connection, [event_of(Reason.CAMPAIGN_BEGUN, message, kind="Node", name=node, about=made.id)])
        return answer(shown, 201)

    return write_once(request, raw, create)


@router.get("/campaigns", summary="Profiling campaigns, the newest first")
def list_campaigns(
    ctx: Ctx, who: Who, limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 100
) -> Reply[CampaignListWire]:
    require(who, Noun.CAMPAIGN, AccessVerb.READ)
    found = ctx.database.read(lambda connection: campaigns.recent(connection, limit))
    return answer({"kind": "CampaignList", "items": [_head(campaign) for campaign in found]})


@router.get(
    "/campaigns/{campaign}", summary="A campaign with its measurements, and at its end the Profiles that they make"
)
def read_campaign(ctx: Ctx, who: Who, campaign: CampaignId) -> Reply[CampaignDetailWire]:
    require(who, Noun.CAMPAIGN, AccessVerb.READ)

    def read(connection: Connection) -> CampaignDetailWire:
        found = _existing(connection, campaign)
        measured = campaigns.measurements(connection, found.id)
        profiles, error = ([], None) if found.is_live else call_solvers(lambda: _profiles(connection, found, measured))
        end = {"measurements": measured, "leftOutError": error, "profiles": profiles}
        shown = cast(CampaignDetailWire, {**_head(found), **end})
        began, last = found.began_at, measured[-1].at if measured else None
        if found.is_live and began and last and last > began:
            left = _most(found) - len(measured)
            shown["secondsLeft"] = round(left * (last - began).total_seconds() / len(measured), 1)
        if error and not found.request.neighbours:
            following = call_solvers(lambda: _find_next(found, measured))
            if following:
                shown["nextSetting"] = following
        return shown

    return answer(ctx.database.read(read))


@router.delete("/campaigns/{campaign}", summary="Stop a campaign: its GPU is free again")
def stop_campaign(request: Request, who: Who, by: By, campaign: CampaignId, _body: NoBody) -> Reply[CampaignWire]:
    """Ends a campaign; its measurements stay. A campaign that has ended stays as it is."""
    require(who, Noun.CAMPAIGN, AccessVerb.WRITE)

    def stop(connection: Connection) -> Reply[CampaignWire]:
        found = _existing(connection, campaign, lock=True)
        if found.is_live:
            finish(connection, found, "stopped", "asked", f"stopped by {who.id}")
            audit.record(connection, [by.entry("stop", Noun.CAMPAIGN, name=found.id, before=_head(found))])
        return answer(_head(_existing(connection, campaign)))

    return write_once(request, b"", stop)


@router.post(
    "/nodes/{name}/profiling",
    summary="What a node has measured, and what to measure next",
    openapi_extra=takes(ProfilingReport),
)
def exchange(request: Request, who: Who, body: requests.Body, name: Name) -> Reply[ProfilingAnswer]:
    """Asked by the node's agent. A result counts once, however often it is sent."""
    require(who, Noun.REPORT, AccessVerb.WRITE, name)
    try:
        report = _report.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise HttpProblem("invalid", f"the body is not a report of measurements: {error}") from None

    def advance(connection: Connection) -> ProfilingAnswer:
        from app.campaigns import steps

        return steps.advance(connection, name, report)

    database = context(request).database
    return answer(call_solvers(lambda: database.write(advance, repeatable=True)))


def _import_solvers() -> None:
    import app.campaigns.choosing
    import app.campaigns.neighbours  # noqa: F401


def _existing(connection: Connection, name: str, *, lock: bool = False) -> Campaign:
    found = campaigns.get(connection, name, lock=lock)
    if found is None:
        raise HttpProblem("not-found", f"there is no campaign {name}")
    return found


def _head(campaign: Campaign) -> CampaignWire:
    """Returns a campaign without its measurements."""
    settings = campaign.request.settings
    return write_row(
        CampaignWire,
        campaign,
        accuracy=campaign.request.accuracy,
        most=_most(campaign),
        batches=sorted({setting.batch for setting in settings}),
        smPercents=sorted({setting.sm_percent for setting in settings}),
        neighbours=campaign.names[1:],
        clocksMhz=sorted({setting.clock_mhz for setting in settings}),
    )


def _most(campaign: Campaign) -> int:
    """Returns how many settings it measures at most."""
    return min(campaign.request.most, len(campaign.request.settings))


def _find_next(campaign: Campaign, measured: list[MeasuredSetting]) -> CopySetting | None:
    """Returns what makes the curve of a campaign that has ended surest; None if all its settings are measured."""
    from app.campaigns.choosing import choose

    return choose(campaign.request.settings, measured, campaign.failures, 0.0, len(measured) + 1)


def _profiles(
    connection: Connection, campaign: Campaign, measured: list[MeasuredSetting]
) -> tuple[list[Free], float | None]:
    """Returns the Profiles that the measurements make, and their error (None: too few measurements)."""
    from app.campaigns.profile import ProfileSubject, profile_of

    if not measured:
        return [], None
    if campaign.request.neighbours:
        return _profiles_beside(connection, campaign)
    about = (campaign.variant, campaign.gpu_type)
    profiles = objects.read_objects_of_models(connection, Kind.PROFILE, [campaign.model])
    declared = next((found for found in profiles if (found.spec["variant"], found.spec["gpuType"]) == about), None)
    subject = ProfileSubject(
        campaign.model,
        campaign.variant,
        campaign.gpu_type,
        max(setting.clock_mhz for setting in campaign.request.settings),
        declared.name if declared else "",
        declared.spec if declared else None,
        find_error_goal(campaign.request.accuracy),
    )
    made = profile_of(subject, measured, campaign.request.settings)
    return [made.manifest], made.left_out_error


def _profiles_beside(connection: Connection, campaign: Campaign) -> tuple[list[Free], float | None]:
    """Returns the Profiles of all models that were measured beside others on the GPU type: they have one scale."""
    from app.campaigns.neighbour_profiles import DeclaredProfile, neighbour_profiles

    measured = campaigns.read_measured_together(connection, campaign.gpu_type, campaign.asked_at)
    models = {copy.model for found in measured for copy in found.copies}
    declared = [
        DeclaredProfile(found.name, found.spec)
        for found in objects.read_objects_of_models(connection, Kind.PROFILE, models)
        if found.spec["gpuType"] == campaign.gpu_type
    ]
    made = neighbour_profiles(declared, measured)
    return made.manifests, made.left_out_error

"""Explains services, instances, jobs and plans, in numbers and in sentences."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal, NotRequired, TypedDict, TypeVar, cast

from fastapi import Path, Query
from sqlalchemy import Connection

from app.access import AccessVerb, Noun, Principal, Reach, require
from app.api.answers import questions
from app.api.answers.solvers import call_solvers
from app.api.objects import Name
from app.api.plans import plan_wire
from app.api.plans.no_plan import NONE_YET, explain_no_plan, explain_unplanned
from app.api.plans.plan_wire import PlanContentWire, PlanOthersWire
from app.api.replies import Reply, TypedRouter
from app.api.requests import Ctx, Who, answer
from app.context import Context
from app.control.answer.explain.plan import (
    HeldBackChangeWire,
    describe_plan,
    explain_cycles,
    explain_gateway_waits,
    explain_held_back,
)  # fmt: skip
from app.control.answer.explain.profile import ProfileExplanationWire
from app.control.answer.explain.profile import explain_profile as describe_profile
from app.control.answer.explain.wire import (
    ExplainedServiceWire,
    InstanceExplanationWire,
    JobExplanationWire,
    ProfilingWorthWire,
    ServiceExplanationWire,
    UnservedWhyWire,
    WorthProfilingWire,
)
from app.control.answer.explain.wording import count
from app.control.domain.specs import quantile_of
from app.control.solve.aside import Aside
from app.manifests.model import Free, Key, Kind
from app.problem import HttpProblem
from app.store.database import clock
from app.store.fleet import load_points
from app.store.plans import corrections, plan_reads
from app.store.plans.plan_reads import CycleWire, PlanHeadRow
from app.store.world import objects
from app.store.world.objects import StoredObject, rfc3339
from app.world import declare
from app.world.consequences import POLICY
from solvers.planning.certificate_wire import PlanCertificateWire
from solvers.planning.wire import PlanUnservedWire

router = TypedRouter(prefix="/api/v1/explain", tags=["explain"])

SECONDS = 20.0
LOADS_WITHIN, LOADS_STEP = timedelta(minutes=30), timedelta(seconds=10)
CYCLES = 50
OF_THE_FLEET = ("alternatives", "lately", "runnerUp", "shapes", "unfit", "why")
Of = Annotated[int, Query(alias="plan", ge=0, lt=2**62, description="Explain this plan; by default the one in force")]


Explained = TypeVar("Explained", ServiceExplanationWire, JobExplanationWire, InstanceExplanationWire)


class PlanExplanationWire(TypedDict):
    """A plan in sentences, and why nothing has changed since; a tenant gets `others` instead of the fleet's parts."""

    generation: int
    sentences: list[str]
    lately: NotRequired[list[str]]
    heldBack: NotRequired[list[HeldBackChangeWire]]
    certificate: NotRequired[PlanCertificateWire | None]
    worthProfiling: NotRequired[list[WorthProfilingWire]]
    others: NotRequired[PlanOthersWire]


@router.get("/services/{tenant}/{name}", summary="Explain a service: its instances, or why it is unserved")
def explain_service(ctx: Ctx, who: Who, tenant: Name, name: Name, of: Of = 0) -> Reply[ServiceExplanationWire]:
    """Explains GPU, batch and share, the cost of the runner-up, what is unserved, and the least change that helps."""
    return answer(service_explanation(ctx, who, tenant, name, of))


def service_explanation(ctx: Context, who: Principal, tenant: str, name: str, of: int = 0) -> ServiceExplanationWire:
    """Returns the explanation of a service as this caller may see it."""
    granted = require(who, Kind.SERVICE, AccessVerb.READ, tenant)
    _there(ctx, Key(Kind.SERVICE, tenant, name))
    if why := ctx.database.read(lambda connection: explain_unplanned(connection, f"{tenant}/{name}")):
        raise HttpProblem("not-found", why)
    found = _explain(ctx, who, "service", f"{tenant}/{name}", of)
    viewer = who.tenant if granted is Reach.OWN else ""
    return hide_neighbours(_add_held_back(ctx, found, f"{tenant}/{name}", of, viewer), who, granted)


@router.get("/jobs/{tenant}/{name}", summary="Explain a job: where it runs, or why it waits")
def explain_job(ctx: Ctx, who: Who, tenant: Name, name: Name, of: Of = 0) -> Reply[JobExplanationWire]:
    granted = require(who, Kind.JOB, AccessVerb.READ, tenant)
    _there(ctx, Key(Kind.JOB, tenant, name))
    found: JobExplanationWire = _explain(ctx, who, "job", f"{tenant}/{name}", of)
    return answer(hide_neighbours(found, who, granted))


@router.get("/instances/{instance:path}", summary="Explain an instance: its GPU, batch and share")
def explain_instance(
    ctx: Ctx, who: Who, instance: Annotated[str, Path(max_length=200, pattern=r"^[!-~]+$")], of: Of = 0
) -> Reply[InstanceExplanationWire]:
    granted = require(who, Noun.PLAN, AccessVerb.READ)

    def known(connection: Connection) -> list[str]:
        number = of or plan_reads.read_generation_in_force(connection) or plan_reads.newest(connection)
        body = plan_wire.body(connection, number) if number else None
        lines = body["instances"] if body else ()
        return [
            line["id"] for line in lines if granted is not Reach.OWN or line["service"].startswith(f"{who.tenant}/")
        ]

    names = ctx.database.read(known)
    if instance not in names:
        like = f"; names are like {names[0]}" if names else ""
        raise HttpProblem("not-found", f"the plan has no instance {instance}{like}")
    found: InstanceExplanationWire = _explain(ctx, who, "instance", instance, of)
    return answer(hide_neighbours(found, who, granted))


@router.get("/profiles/{name}", summary="Explain a profile: declared times, and what was learned of them")
def explain_profile(ctx: Ctx, who: Who, name: Name) -> Reply[ProfileExplanationWire]:
    """Gives the declared time of each point, its factor, from how many minutes it was learned, and when."""
    granted = require(who, Kind.PROFILE, AccessVerb.READ)
    key = Key(Kind.PROFILE, "", name)

    def read(connection: Connection) -> ProfileExplanationWire:
        stored = objects.get(connection, key)
        if stored is None or (granted is Reach.ADMITTED and not stored.admitting(who.tenant)):
            raise declare.missing(key)
        return describe_stored_profile(connection, stored)

    return answer(ctx.database.read(read))


def describe_stored_profile(connection: Connection, stored: StoredObject) -> ProfileExplanationWire:
    """Returns the Profile's points, by the quantile that the Policy counts on."""
    policy = objects.get(connection, POLICY)
    model, variant, gpu_type = (str(stored.spec[field]) for field in ("model", "variant", "gpuType"))
    row = corrections.read_one(connection, model, variant, gpu_type)
    quantile = quantile_of(policy.spec if policy else {})
    return describe_profile(stored.name, stored.spec, row, rfc3339(stored.updated_at), quantile)


@router.get("/plans/{generation}", summary="Explain a plan, and why nothing has changed since")
def explain_plan(
    ctx: Ctx, who: Who, generation: Annotated[int, Path(ge=0, lt=2**62, description="0: the plan in force")]
) -> Reply[PlanExplanationWire]:  # fmt: skip
    granted = require(who, Noun.PLAN, AccessVerb.READ)

    def read(connection: Connection) -> tuple[PlanHeadRow, PlanContentWire, list[CycleWire]]:
        number = generation or plan_reads.read_generation_in_force(connection) or plan_reads.newest(connection)
        row = plan_reads.read_head(connection, number) if number else None
        body = plan_wire.body(connection, number) if row else None
        if row is None or body is None:
            none = NONE_YET if granted is Reach.OWN else explain_no_plan(connection)
            detail = f"there is no plan {generation}" if generation else none
            raise HttpProblem("not-found", detail)
        cycles = plan_reads.cycles(connection, CYCLES)
        return row, body, cycles

    row, body, cycles = ctx.database.read(read)
    if granted is Reach.OWN:
        return answer(_own_plan(ctx, who, row, plan_wire.select_tenant(body, who.tenant)))
    found: PlanExplanationWire = {
        "generation": row["generation"],
        "sentences": [
            *describe_plan(row, _add_reasons(ctx, who, row["generation"], body), body["heldBack"]),
            *explain_gateway_waits(row, body),
        ],
        "lately": explain_cycles(cycles),
        "heldBack": body["heldBack"],
        "certificate": body["certificate"],
    }
    _add_worth_profiling(ctx, who, found)
    return answer(found)


def _own_plan(ctx: Context, who: Principal, row: PlanHeadRow, own: PlanContentWire) -> PlanExplanationWire:
    """Returns a plan as a tenant sees it: what it has and lacks itself."""
    head = plan_wire.head(row, who.tenant)
    lacks = _add_reasons(ctx, who, row["generation"], own)
    sentences = describe_plan({**head, "message": ""}, lacks, own["heldBack"])
    mine = f"{count(len(own['instances']), 'instance')} and {count(len(own['jobs']), 'job')} of {who.tenant}"
    first = f"plan {row['generation']} is {head['state']}; it has {mine}"
    return {"generation": row["generation"], "sentences": [first, *sentences[1:]], "others": own["others"]}


def _add_reasons(ctx: Context, who: Principal, generation: int, plan: PlanContentWire) -> PlanContentWire:
    """Returns the plan with a reason for all that it leaves unserved: plans of small steps are recorded without."""
    if all(line.get("reason") for line in plan["unserved"]):
        return plan

    def order() -> Aside[dict[str, UnservedWhyWire]]:
        from app.control.answer.explain.question import Explain

        snapshot, recorded = ctx.database.read(lambda read: questions.read_recorded(read, generation))
        return Explain(snapshot, recorded, "unserved", "")

    try:
        known = questions.ask(ctx, who, call_solvers(order), SECONDS)
    except HttpProblem:  # its snapshot is no longer kept, or no solvers are here: reasons are left out
        return plan
    lines: list[PlanUnservedWire] = [
        {**line, **known[line["service"]]} if not line.get("reason") and line["service"] in known else line
        for line in plan["unserved"]
    ]
    return {**plan, "unserved": lines}


def _add_worth_profiling(ctx: Context, who: Principal, found: PlanExplanationWire) -> None:
    """Adds the services whose uncertain profiles cost money; without an uncertain profile, nothing is asked."""

    def order() -> Aside[ProfilingWorthWire] | None:
        from app.control.answer.explain.question import Explain
        from app.control.answer.explain.uncertainty import states_spread

        snapshot, plan = ctx.database.read(lambda read: questions.read_recorded(read, found["generation"]))
        return Explain(snapshot, plan, "profiling", "") if states_spread(snapshot) else None

    try:
        asked = call_solvers(order)
    except HttpProblem:  # its snapshot is no longer kept, or no solvers are here: this part is left out
        return
    if asked is None:
        found["worthProfiling"] = []
        return
    try:
        known = questions.ask(ctx, who, asked, SECONDS)
    except HttpProblem as problem:
        found["sentences"].append(f"what profiling could save is not known now: {problem.detail}")
        return
    found["sentences"] += known["sentences"]
    found["worthProfiling"] = known["worthProfiling"]


def _there(ctx: Context, key: Key) -> None:
    if ctx.database.read(lambda connection: objects.get(connection, key)) is None:
        raise declare.missing(key)


def _explain(ctx: Context, who: Principal, what: Literal["service", "instance", "job"], name: str, of: int) -> Any:
    """Returns the explanation that the question has by its kind."""

    def order() -> Aside[Any]:
        from app.control.answer.explain.headroom import RecentLoads
        from app.control.answer.explain.question import Explain

        def read(connection: Connection) -> Explain:
            snapshot, plan = questions.read_recorded(connection, of)
            if what != "service" or of:
                return Explain(snapshot, plan, what, name)
            at, (tenant, _, short) = clock.moment(connection), name.partition("/")
            points = load_points.read_service_points(connection, tenant, short, at - LOADS_WITHIN, at, LOADS_STEP)
            return Explain(snapshot, plan, what, name, RecentLoads(at, LOADS_STEP.total_seconds(), points))

        return ctx.database.read(read)

    explanation = questions.ask(ctx, who, call_solvers(order), SECONDS)
    if "missing" in explanation:
        raise HttpProblem("not-found", explanation["missing"])
    return explanation


def hide_neighbours(explanation: Explained, who: Principal, granted: Reach) -> Explained:
    """Removes what names neighbours or other nodes, for callers who may not see the fleet."""
    if granted is not Reach.OWN:
        return explanation
    shown: Free = {key: value for key, value in explanation.items() if key not in OF_THE_FLEET}
    shown["sentences"] = [text for text in explanation["sentences"] if not _names_others(text)]
    if _names_others(shown.get("reason") or ""):
        shown["reason"] = ""
    return cast(Explained, shown)


def _add_held_back(
    ctx: Context, explanation: ExplainedServiceWire, name: str, of: int, tenant: str
) -> ServiceExplanationWire:
    """Adds the changes to the service that the plan, or a cycle since, held back, as `tenant`, if any, may see them."""

    def read(connection: Connection) -> tuple[list[HeldBackChangeWire], list[str], list[CycleWire]]:
        number = of or plan_reads.read_generation_in_force(connection) or plan_reads.newest(connection)
        body = plan_wire.body(connection, number) or plan_wire.NOTHING
        shown = plan_wire.select_tenant(body, tenant) if tenant else body
        held = [change for change in shown["heldBack"] if change["service"] == name]
        row = plan_reads.read_head(connection, number)
        waits = explain_gateway_waits(row, body, name) if row else []
        return held, waits, plan_reads.cycles(connection, CYCLES)

    held, waits, cycles = ctx.database.read(read)
    lately = [sentence for sentence in explain_cycles(cycles) if f"{name}: " in sentence]
    return {
        **explanation,
        "sentences": [*explanation["sentences"], *explain_held_back(held), *waits],
        "heldBack": held,
        "lately": lately,
    }


def _names_others(sentence: str) -> bool:
    return sentence.startswith(("why this GPU: ", "why not cheaper: "))

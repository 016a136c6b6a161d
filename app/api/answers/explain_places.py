"""Explains nodes, pools and tenants: what runs there and why, what limits them."""

from __future__ import annotations

from sqlalchemy import Connection

from app.access import AccessVerb, Noun, Reach, require
from app.api.answers.solvers import call_solvers
from app.api.objects import Name
from app.api.plans import plan_wire
from app.api.plans.no_plan import NONE_YET, explain_no_plan
from app.api.plans.plan_wire import PlanContentWire
from app.api.replies import Reply, TypedRouter
from app.api.requests import Ctx, Who, answer
from app.control.answer.explain.places import NodeExplanationWire, TenantExplanationWire
from app.control.answer.explain.pools import PoolExplanationWire
from app.control.answer.explain.wording import clock as spell_clock
from app.control.domain.snapshot import SILENT_SECONDS
from app.control.domain.specs import node_price
from app.manifests.model import Key, Kind
from app.problem import HttpProblem
from app.store.database import clock
from app.store.fleet import cordons, rented
from app.store.plans import plan_reads
from app.store.world import events, objects
from app.store.world.events import EventFilter
from app.store.world.objects import Selection, rfc3339
from app.world import declare

router = TypedRouter(prefix="/api/v1/explain", tags=["explain"])

MOST_NAMES = 500  # of services or of jobs
LATELY = 10  # events of a pool


@router.get("/nodes/{name}", summary="Explain a node: what runs on each GPU, what is free, what keeps plans off it")
def explain_node(ctx: Ctx, who: Who, name: Name) -> Reply[NodeExplanationWire]:
    require(who, Kind.NODE, AccessVerb.READ)
    key = Key(Kind.NODE, "", name)

    def read(connection: Connection) -> NodeExplanationWire:
        from app.control.answer.explain import places

        node = objects.get(connection, key)
        if node is None:
            raise declare.missing(key)
        gpu_type = objects.get(connection, Key(Kind.GPU_TYPE, "", str(node.spec["gpuType"])))
        size = gpu_type.spec["memoryGib"] if gpu_type else 0.0
        plan = _plan(connection)
        kept_off = [cordon.wire() for cordon in cordons.list_cordons(connection, name)]
        return places.explain_node(name, node.spec, plan, plan.get("releasable", ()), kept_off, node.conditions, size)

    return answer(call_solvers(lambda: ctx.database.read(read)))


@router.get("/pools/{name}", summary="Explain a pool: why it has as many nodes, what it waits for, its last orders")
def explain_pool(ctx: Ctx, who: Who, name: Name) -> Reply[PoolExplanationWire]:
    require(who, Kind.POOL, AccessVerb.READ)
    key = Key(Kind.POOL, "", name)

    def read(connection: Connection) -> PoolExplanationWire:
        from app.control.answer.explain import pools

        pool = objects.get(connection, key)
        gpu_type = objects.get(connection, Key(Kind.GPU_TYPE, "", str(pool.spec["gpuType"]))) if pool else None
        if pool is None or gpu_type is None:
            raise declare.missing(key)
        price = node_price(pool.spec, gpu_type.spec) * int(pool.spec["gpusPerNode"])
        number = plan_reads.read_generation_in_force(connection)
        plan = plan_wire.body(connection, number) if number else None
        recent = events.recent(connection, EventFilter(kind=str(Kind.POOL), name=name), LATELY)
        lately = [f"{spell_clock(rfc3339(event.last_at))}: {event.message}" for event in recent]
        rows = rented.read(connection, SILENT_SECONDS)
        now = clock.moment(connection)
        return pools.explain_pool(name, pool.spec, price, rows, plan, pool.conditions, lately, now)

    return answer(call_solvers(lambda: ctx.database.read(read)))


@router.get("/tenants/{name}", summary="Explain a tenant: what it has in the plan, what it lacks and why, its limits")
def explain_tenant(ctx: Ctx, who: Who, name: Name) -> Reply[TenantExplanationWire]:
    """A tenant may ask about itself."""
    granted = require(who, Noun.PLAN, AccessVerb.READ, name)

    def read(connection: Connection) -> TenantExplanationWire:
        from app.control.answer.explain import places

        found = objects.get(connection, Key(Kind.TENANT, "", name))
        declared = {
            kind.plural: [
                f"{each.tenant}/{each.name}"
                for each in objects.page(connection, Selection(kind, tenant=name), ("", ""), MOST_NAMES)
            ]
            for kind in (Kind.SERVICE, Kind.JOB)
        }
        if found is None and not any(declared.values()):
            raise declare.missing(Key(Kind.TENANT, "", name))
        own = plan_wire.select_tenant(_plan(connection, is_own=granted is Reach.OWN), name)
        return places.explain_tenant(
            name, found.spec if found else None, declared, own, found.conditions if found else []
        )

    return answer(call_solvers(lambda: ctx.database.read(read)))


def _plan(connection: Connection, *, is_own: bool = False) -> PlanContentWire:
    """Returns the plan in force, or the newest if none is."""
    number = plan_reads.read_generation_in_force(connection) or plan_reads.newest(connection)
    plan = plan_wire.body(connection, number) if number else None
    if plan is None:
        raise HttpProblem("not-found", NONE_YET if is_own else explain_no_plan(connection))
    return plan

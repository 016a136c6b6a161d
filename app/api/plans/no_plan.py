"""Says why there is no plan yet: no planner, nothing to plan on, or a planner that fails are different problems."""

from __future__ import annotations

from sqlalchemy import Connection

from app.control.answer.explain.plan import explain_cycles
from app.nodes.reporting_condition import PATIENCE
from app.store.database import clock, lease
from app.store.fleet import fleet_map
from app.store.plans import plan_reads
from app.store.world.slos import find_unprofiled

NONE_YET = "there is no plan yet"  # a tenant learns no more than this
NO_PLANNER = (
    "there is no plan yet, and no planner leads: one that `gpuwright up` has just started takes some seconds; "
    "elsewhere start one with: gpuwright planner"
)
NO_NODES = "there is no plan yet: no node is declared; see: gpuwright apply, gpuwright token join"
QUIET = ("unchanged", "solved")  # outcomes of cycles that say nothing of what is missing
FIRST_CYCLE = (
    "its first cycle has not ended; after an installation it compiles its loops first, a minute or two, and longer "
    "where other work keeps the cores busy"
)
AGENTS = "an agent has to run there, see: gpuwright token join, gpuwright agent join"


def explain_no_plan(connection: Connection) -> str:
    """Returns one sentence, with what to do."""
    leader = lease.current(connection)
    if leader is None or not leader.held:
        return NO_PLANNER
    newest = plan_reads.cycles(connection, 1)
    if newest and newest[0]["outcome"] not in QUIET:
        return f"there is no plan yet; {explain_cycles(newest)[0]}"
    nodes, at = fleet_map.nodes(connection), clock.moment(connection)
    if not nodes:
        return NO_NODES
    if not any(node.received_at and at - node.received_at <= PATIENCE for node in nodes):
        none = "the declared node does not report" if len(nodes) == 1 else f"none of the {len(nodes)} nodes reports"
        return f"there is no plan yet: {none}; {AGENTS}"
    if not newest:
        return f"there is no plan yet: planner {leader.holder} leads, and {FIRST_CYCLE}"
    if unprofiled := find_unprofiled(connection):
        return f"{NONE_YET}: {_explain_unprofiled(*min(unprofiled.items()))}"
    # The newest cycle changed nothing, or its plan was overtaken: nodes have begun to report since.
    return f"there is no plan yet: planner {leader.holder} leads and looks again in its next cycle"


def explain_unplanned(connection: Connection, service: str) -> str:
    """Returns why a service is in no plan, where that is known without one; empty where there is a plan."""
    if plan_reads.newest(connection):
        return ""
    model = find_unprofiled(connection).get(service)
    return f"{NONE_YET}: {_explain_unprofiled(service, model)}" if model else ""


def _explain_unprofiled(service: str, model: str) -> str:
    measure = f"measure it: gpuwright profile {model} --on NODE --apply"
    return f"model {model} of {service} has no profile, so nothing is known that could serve it; {measure}"

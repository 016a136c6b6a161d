"""The states of a fleet in which a fault can strike, by plain code of its own; and the pairs that cannot be.

A fleet is in several states at once. `idle` is none of the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, text

from agents.keeper.copies import Stage
from simulation.shapes import steady

if TYPE_CHECKING:
    from tests.proofs.campaign.invariants import Campaign

SILENT_SECONDS, LOST_SECONDS = 30.0, 120.0  # after the last report that arrived
RISING = (Stage.STARTING, Stage.VERIFYING, Stage.WARMING, Stage.ROUTING)
ENDING = (Stage.DRAINING, Stage.ENDING)

IN_FORCE = text(
    "SELECT state, rollout FROM plan WHERE state IN ('rolling', 'done', 'stopped') ORDER BY generation DESC LIMIT 1"
)
CLOSED = text("SELECT DISTINCT mode FROM cordon")
NOTICES = text("SELECT count(*) FROM reclaim_notice WHERE NOT is_withdrawn")
SILENCES = text("SELECT extract(epoch FROM moment() - received_at) FROM node_state")

STATES: Mapping[str, str] = {
    "idle": "the plan is done, everything runs as planned, and no fault lasts",
    "rollout": "steps of a plan are under way",
    "rising": "a copy starts",
    "ending": "a copy ends",
    "hand-over": "an instance has two copies",
    "canary": "the first copy of another variant is on trial",
    "copy down": "a planned copy is down after its rollout",
    "suspect": "a service fails wherever it is started",
    "many down": "so much is down that nothing moves",
    "unserved": "a service has no copy that answers",
    "job away": "no copy of the job is ready",
    "node silent": "no report of a node has come for half a minute",
    "node lost": "... for longer than the policy forgives",
    "reports astray": "reports of a node are lost, late or doubled",
    "clock off": "a node's clock is an hour away",
    "gpu gone": "a GPU is not there",
    "place broken": "no copy runs on a GPU or node",
    "file gone": "a service's model cannot be read",
    "memory taken": "another user's process has a GPU's memory",
    "capped": "a GPU has less power than it would draw",
    "cordon": "a node gets nothing new",
    "drain": "everything has to leave a node or GPU",
    "reclaim": "a node's cloud wants it back",
    "no leader": "nobody plans, and no report arrives",
    "second leader": "a paused leader will go on beside its successor",
    "solver fails": "the next answer of the solver is none, or wrong",
    "gateway away": "a node cannot reach its gateway",
    "load moved": "a service has another load than declared",
}

# By state, faults that can do nothing there; a fault that ends with the state it would begin is one, too.
IMPOSSIBLE: Mapping[str, tuple[str, ...]] = {
    "job away": ("memory_taken",),  # it takes the memory next to a job that is ready
    "no leader": ("leader_dies", "leader_paused", "control_plane_away"),  # nobody leads
}


def possible_pairs(kinds: Collection[str]) -> frozenset[tuple[str, str]]:
    """Returns each state with each kind of fault that can strike there."""
    return frozenset((state, kind) for state in STATES for kind in kinds if kind not in IMPOSSIBLE.get(state, ()))


def find_states(campaign: Campaign) -> frozenset[str]:
    """Returns the states that the fleet is in now."""
    return frozenset([*_in_tables(campaign), *_of_copies(campaign), *_of_nodes(campaign), *_of_planners(campaign)]) or (
        frozenset(["idle"])
    )


def _in_tables(campaign: Campaign) -> Iterator[str]:
    def read(connection: Connection) -> tuple[Any, list[str], int, list[float]]:
        plan, notices = connection.execute(IN_FORCE).one_or_none(), connection.execute(NOTICES).scalar_one()
        modes, silences = connection.execute(CLOSED).scalars(), connection.execute(SILENCES).scalars()
        return plan, list(modes), notices, list(silences)

    plan, modes, notices, silences = campaign.simulation.database.read(read)
    if plan is not None:
        yield from ("rollout",) if plan.state == "rolling" else ()
        yield from ("canary",) if plan.rollout.get("canaries") else ()
        yield from ("suspect",) if plan.rollout.get("suspects") else ()
        yield from ("many down",) if plan.rollout.get("held") else ()
        down = plan.rollout.get("down", {}).values()
        yield from ("copy down",) if any(not spell["up_since"] for spell in down) else ()
    yield from modes
    yield from ("reclaim",) if notices else ()
    yield from ("node lost",) if any(seconds > LOST_SECONDS for seconds in silences) else ()
    yield from ("node silent",) if any(SILENT_SECONDS < seconds <= LOST_SECONDS for seconds in silences) else ()


def _of_copies(campaign: Campaign) -> Iterator[str]:
    served: set[str] = set()
    for node in campaign.nodes:
        alive = node.alive()
        instances = [copy.instance for copy in alive]
        yield from ("rising",) if any(copy.stage in RISING for copy in alive) else ()
        yield from ("ending",) if any(copy.stage in ENDING for copy in alive) else ()
        yield from ("hand-over",) if len(instances) > len(set(instances)) else ()
        served |= {copy.service for copy in alive if copy.served and node.answers(copy.id)}
    yield from ("unserved",) if set(campaign.simulation.fleet.declared) - served else ()
    jobs = [copy for node in campaign.nodes for copy in node.alive() if not copy.served]
    yield from () if any(copy.stage is Stage.READY for copy in jobs) else ("job away",)


def _of_nodes(campaign: Campaign) -> Iterator[str]:
    for node in campaign.nodes:
        how = campaign.simulation.post.lines[node.name].how
        yield from ("reports astray",) if how in ("lost", "doubled", "late") else ()
        yield from ("clock off",) if node.clock_off else ()
        yield from ("gpu gone",) if node.lost else ()
        is_broken = node.broken or not node.has_templates
        slots = node.machine.slots.values()
        yield from ("place broken",) if is_broken or any(not slot.daemon.startable for slot in slots) else ()
        yield from ("file gone",) if node.deleted else ()
        others = [context for slot in slots for context in slot.gpu.contexts if not context.under_mps]
        yield from ("memory taken",) if others else ()
        yield from ("capped",) if node.caps_w else ()


def _of_planners(campaign: Campaign) -> Iterator[str]:
    simulation = campaign.simulation
    yield from () if simulation.plans else ("no leader",)
    yield from ("second leader",) if campaign.paused_leaders else ()
    yield from ("solver fails",) if campaign.solver.outcomes or campaign.solver.spoil else ()
    yield from ("gateway away",) if campaign.tools.gateway.away else ()
    yield from ("load moved",) if any(shape is not steady for shape in simulation.fleet.shapes.values()) else ()

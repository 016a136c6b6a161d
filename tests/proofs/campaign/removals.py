"""Removes one defence at a time from the product, as a careless change would; the campaign must notice each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import psycopg
from sqlalchemy import TextClause, text

from agents.control.assignments import AssignmentVerdict
from agents.control.contact import Contact
from agents.keeper import decide as deciding
from agents.keeper import journal
from agents.keeper.copies import Stage
from agents.keeper.routing import GatewayRoutes
from agents.node import gpu_indexes
from agents.node.memory_guard import MemoryGuard
from agents.policy.memory import Guard, Moves
from agents.runtime import proc
from agents.seams.routes import RouteState
from app import access
from app.control.formulate.question import Question
from app.control.rollout.failing.falls import FoundFalls
from app.nodes import devices
from app.store.database import lease
from app.store.database.database import Database
from app.store.database.urls import libpq_url
from app.store.plans import plans
from solvers.planning.judge import JudgedPlan, Verdict
from solvers.planning.plan import Plan

Patch = Callable[[ExitStack, str], None]


@dataclass(frozen=True, slots=True)
class Removal:
    """How a defence is removed, the invariant that then breaks (or `plan`), and the faults that it defends against."""

    remove: Patch
    invariant: str
    faults: Sequence[str]


def _fencing(stack: ExitStack, url: str) -> None:
    """The epoch is not asked for: neither by the database, nor by the agents."""
    asked, not_asked = "epoch = :epoch", "CAST(:epoch AS bigint) IS NOT NULL"
    for module, name in ((lease, "HELD"), (lease, "NEXT"), (plans, "CYCLE")):
        fenced: TextClause = getattr(module, name)
        assert asked in fenced.text, f"{name} asks for no epoch"
        stack.enter_context(patch.object(module, name, text(fenced.text.replace(asked, not_asked))))
    for agent in ("simulation.fleet.node", "tests.support.whole_node", "agents.control.assignments"):
        stack.enter_context(patch(f"{agent}.judge_assignment", lambda memory, offered: AssignmentVerdict.TAKE))


def _fsync(stack: ExitStack, url: str) -> None:
    """The journal is written, but not synced."""
    lazy = SimpleNamespace(**{name: getattr(os, name) for name in dir(os)} | {"fsync": lambda handle: None})
    stack.enter_context(patch.object(journal, "os", lazy))


def _make_before_break(stack: ExitStack, url: str) -> None:
    """A copy is taken down as soon as its replacement has been started."""
    careful = deciding._take_down

    def hasty(wanted: Any, copies: Any, by_instance: Any, node: Any) -> list[deciding.TakeDown]:
        found = careful(wanted, copies, by_instance, node)
        named = {taken.copy for taken in found}
        for want in wanted:
            own = by_instance.get(want.instance.id, ())
            right = deciding.right_copy(want, own)
            found += [
                deciding.TakeDown(copy.id, "replaced")
                for copy in own
                if copy is not right and copy.stage is Stage.READY and copy.id not in named and right is not None
            ]
        return found

    stack.enter_context(patch.object(deciding, "_take_down", hasty))


def _route_acknowledgement(stack: ExitStack, url: str) -> None:
    """A route counts as in force, and as gone, as soon as it is declared."""
    stack.enter_context(patch.object(GatewayRoutes, "in_force", lambda self, copy: RouteState(copy.id, copy.rising, 0)))
    stack.enter_context(patch.object(GatewayRoutes, "drained", lambda self, copy: True))
    stack.enter_context(patch.object(GatewayRoutes, "is_forgotten", lambda self, copy: True))


def _sixty_seconds(stack: ExitStack, url: str) -> None:
    """Contact is never lost."""
    stack.enter_context(patch.object(Contact, "is_lost", False))


def _isolation(stack: ExitStack, url: str) -> None:
    """A tenant's viewer is let through as the fleet's."""
    fleet_viewer = access.TABLE[access.Role.VIEWER]
    stack.enter_context(patch.dict(access.TABLE, {access.Role.TENANT_VIEWER: fleet_viewer}))


def _judge(stack: ExitStack, url: str) -> None:
    """Whatever the solver returns is right."""
    careful = Question.verdict_on

    def blind(question: Question, plan: Plan) -> Verdict:
        return replace(careful(question, plan), violations=())

    class BlindJudge(JudgedPlan):
        def verdict(self) -> Verdict:
            return replace(super().verdict(), violations=())

    stack.enter_context(patch.object(Question, "verdict_on", blind))
    stack.enter_context(patch("app.control.decide.decide.JudgedPlan", BlindJudge))
    stack.enter_context(patch("app.control.fast.base.StepBase._checked", lambda self, answer, verdict: answer))


def _commit_reread(stack: ExitStack, url: str) -> None:
    """A COMMIT without an answer counts as not done."""
    stack.enter_context(patch.object(Database, "_has_committed", lambda self, xid, checkpoint: False))


def _pid_identity(stack: ExitStack, url: str) -> None:
    """A PID alone names a process."""
    stack.enter_context(patch.object(proc, "send", lambda pid, start_ticks, number: os.kill(pid, number)))


def _memory_guard(stack: ExitStack, url: str) -> None:
    """No job is asked to make room."""
    stack.enter_context(patch("agents.node.memory_guard.memory.guard", lambda before, *rest: (Guard(), Moves())))
    stack.enter_context(patch.object(MemoryGuard, "away", frozenset()))


def _cap_law(stack: ExitStack, url: str) -> None:
    """No GPU counts as over its cap."""
    stack.enter_context(patch("agents.policy.power.law.is_over", lambda period: False))


def _ledger_trigger(stack: ExitStack, url: str) -> None:
    """Closed usage may be rewritten."""
    with psycopg.connect(libpq_url(url), autocommit=True) as connection:
        connection.execute("ALTER TABLE usage_interval DISABLE TRIGGER USER")


def _gpu_places(stack: ExitStack, url: str) -> None:
    """An index belongs to a UUID for ever, and a device in the place of another gets an index of its own."""
    careful = gpu_indexes.settle_indexes

    def by_uuid(known: Any, found: Any, held: Any) -> gpu_indexes.SettledIndexes:
        without_places = [replace(gpu, pci="", serial="") for gpu in found]
        kept = {index: gpu_indexes.IndexedGpu(gpu.uuid) for index, gpu in known.items()}
        there = {gpu.uuid for gpu in kept.values()}
        settled = dict(kept)
        for gpu in careful({}, [gpu for gpu in without_places if gpu.uuid not in there], {}).gpus.values():
            settled[len(settled)] = gpu
        return gpu_indexes.SettledIndexes(settled)

    stack.enter_context(patch("agents.node.device_reader.settle_indexes", by_uuid))


def _devices_taken_over(stack: ExitStack, url: str) -> None:
    """The control plane keeps the UUID that it first had of each index."""
    careful = devices.list_gpus

    def first(before: Any, inventory: Any, ailing: Any, declared: int) -> list[Any]:
        first_uuids = {entry["index"]: entry["uuid"] for entry in before if entry["uuid"]}
        entries = careful(before, inventory, ailing, declared)
        return [entry | {"uuid": first_uuids.get(entry["index"], entry["uuid"])} for entry in entries]

    stack.enter_context(patch("app.nodes.device_status.list_gpus", first))


def _watch_after_rollouts(stack: ExitStack, url: str) -> None:
    """Once its rollout is done, nobody looks whether a copy runs."""
    blind = lambda assigned, observed, state, rules, now: FoundFalls(state)  # noqa: E731
    stack.enter_context(patch("app.control.rollout.advance.find_falls", blind))


REMOVALS: Mapping[str, Removal] = {
    "fencing": Removal(_fencing, "I1", ("leader_paused", "old_assignment", "load_moves")),
    "fsync": Removal(_fsync, "I2", ("copy_killed", "load_moves")),
    "make-before-break": Removal(_make_before_break, "I3", ("handed_over",)),
    "route-acknowledgement": Removal(_route_acknowledgement, "I3", ("handed_over_unacknowledged",)),
    "sixty-seconds": Removal(_sixty_seconds, "I4", ("cut_off_with_a_new_instance", "load_moves")),
    "isolation": Removal(_isolation, "I5", ("tenant_reads",)),
    "judge": Removal(_judge, "plan", ("plan_is_wrong", "load_moves")),
    "commit-reread": Removal(_commit_reread, "I5", ("commit_unanswered",)),
    "pid-identity": Removal(_pid_identity, "I2", ("pid_reused",)),
    "memory-guard": Removal(_memory_guard, "I6", ("memory_taken",)),
    "cap-law": Removal(_cap_law, "I6", ("cap_lowered",)),
    "ledger-trigger": Removal(_ledger_trigger, "I7", ("usage_altered",)),
    "gpu-places": Removal(_gpu_places, "I9", ("uuids_changed", "boards_permuted")),
    "watch-after-rollouts": Removal(_watch_after_rollouts, "I8", ("crash_loop", "port_taken", "never_warm")),
    "devices-taken-over": Removal(_devices_taken_over, "I9", ("uuids_changed", "board_replaced")),
}


@contextmanager
def removed(name: str, url: str) -> Iterator[None]:
    """Runs without this defence; the database is migrated by then."""
    with ExitStack() as stack:
        if name:
            REMOVALS[name].remove(stack, url)
        yield

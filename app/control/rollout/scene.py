"""The fleet while the next step is put together: what holds which room, what carries what, what may be changed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import msgspec

from agents.contract import AssignedInstance
from agents.fits import Shortfall
from app.control.domain.desired import Desired, FleetStatus, NodeDesired
from app.control.domain.events import Reason
from app.control.rollout.capacity import CapacityLedger
from app.control.rollout.changes import (
    NOTHING,
    ChangeKind,
    InstanceChange,
    has_other_batch,
    same_process,
    with_instance,
)
from app.control.rollout.check import start_seconds
from app.control.rollout.clocks import is_raised
from app.control.rollout.room import GpuLimits, shortfall_on
from app.control.rollout.rules import Canary, Leaving, PendingStep, RolloutRules, RolloutState
from app.control.rollout.urgency import urgent

Place = tuple[str, int]


class Scene:
    """Changes are asked for one by one, and made one by one; what is made counts for the next."""

    def __init__(
        self, told: Desired, target: Desired, state: RolloutState, observed: FleetStatus, rules: RolloutRules,
        todo: Sequence[InstanceChange], now: float,
    ) -> None:  # fmt: skip
        self.before, self.target, self.observed, self.rules, self.now = told, target, observed, rules, now
        self.told: dict[str, NodeDesired] = dict(told)
        self.pending: dict[str, PendingStep] = dict(state.pending)
        self.leaving: dict[str, Leaving] = dict(state.leaving)
        self.canaries: dict[str, Canary] = dict(state.canaries)
        self.todo = {change.id: change for change in todo}
        self._unproven = (rules.unproven | state.canaries.keys()) - set(state.proven)
        services = {change.owner for change in todo if change.one.service}
        self.all = todo
        on_trial = {one.instance: PendingStep(0.0, one.before) for one in state.canaries.values()}
        self.ledger = CapacityLedger(services, told, target, {**on_trial, **state.pending}, observed, rules)
        if on_trial and self.urgent:  # what they carry is relied on
            there = [one for wanted in told.values() for one in wanted.instances if one.id in on_trial]
            left = {one.id: on_trial[one.id] for one in there if one.owner not in self.urgent}
            self.ledger = CapacityLedger(services, told, target, {**left, **state.pending}, observed, rules)
        self._holding: dict[Place, list[AssignedInstance]] = defaultdict(list)
        self._jobs: dict[str, int] = defaultdict(int)  # instances of each job that are told or not gone yet
        self._trusted: set[str] = set()  # services of which something serves that is no trial
        self._coming = Counter(change.place for change in todo if change.takes_room and change.one.service)
        self._job_starts = {
            change.owner: change for change in todo if change.one.job and change.kind is ChangeKind.START
        }
        self._look(services)

    def _look(self, services: set[str]) -> None:
        places = {change.place for change in self.todo.values()}
        jobs = {change.owner for change in self.todo.values() if change.one.job}
        for node, wanted in self.told.items():
            for one in wanted.instances:
                owner = one.owner
                if one.job and owner in jobs:
                    self._jobs[owner] += 1
                if owner in services and self.ledger.now.get(one.id) is not None and self._is_proven(one, node):
                    self._trusted.add(owner)
                if (node, one.gpu) in places:
                    self._holding[node, one.gpu] += self._copies(one)
        for gone in self.leaving.values():
            if gone.instance.job:
                self._jobs[gone.instance.owner] += 1
            self._holding[gone.node, gone.instance.gpu].append(gone.instance)

    @cached_property
    def urgent(self) -> frozenset[str]:
        """Services without a copy that serves, and those in their way: none of these waits for a trial."""
        return urgent(self.all, self.ledger, self.before, self.pending)

    def _is_proven(self, one: AssignedInstance, node: str) -> bool:
        return one.profile_key(self.rules.gpu_types.get(node, "")) not in self._unproven

    def _copies(self, one: AssignedInstance) -> list[AssignedInstance]:
        before = self._handed_over(one)
        return [one, before] if before else [one]

    def _handed_over(self, one: AssignedInstance) -> AssignedInstance | None:
        """What the instance is by the process that it still has beside the new one."""
        pending = self.pending.get(one.id)
        return pending.before if pending and pending.before and not same_process(pending.before, one) else None

    def obstacle(self, change: InstanceChange) -> Shortfall | None:
        """Why this change cannot be made now; None when it can."""
        if change.node in self.observed.silent and change.node not in self.observed.lost:
            return Shortfall(Reason.NODE_SILENT, f"{change.node} is not heard of")
        if change.kind is ChangeKind.START and change.id in self.leaving:
            return Shortfall("leaving", "it is wanted again, and ends first")
        if change.one.job:
            return self._obstacle_of_job(change)
        match change.kind:
            case ChangeKind.STOP:
                return self._would_lack(change, 0.0, 1)
            case ChangeKind.RETUNE:
                return self._too_early(change) or self._would_lack(change, change.one.rate_per_second, 0)
            case ChangeKind.RESHAPE:
                if self._is_under_way(change) or self._handing_over(change):
                    return Shortfall("hand_over_under_way", "one hand-over at a time on a GPU")
                return (
                    self.room_for(change)
                    or self._on_trial(change)
                    or self._would_lack(change, change.one.rate_per_second, 0)
                )
            case ChangeKind.START:
                return self.room_for(change) or self._on_trial(change)

    def _is_under_way(self, change: InstanceChange) -> bool:
        """Whether a copy comes up that is better waited for: one that has only begun is told otherwise at once."""
        step = self.pending.get(change.id)
        if step is None or change.before is None:
            return False
        so_far = self.now - step.since
        return step.before is not None or so_far > start_seconds(change.before, change.node, self.rules) / 2

    def _would_lack(self, change: InstanceChange, rate_after: float, instances: int) -> Shortfall | None:
        """Whether the service can do with what this leaves of the instance."""
        carries = self.ledger.now.get(change.id)
        if carries is None or self.ledger.spares(change.owner, max(0.0, carries - rate_after), instances):
            return None
        return Shortfall(Reason.CAPACITY_AT_RISK, self.ledger.said(change.owner))

    def _too_early(self, change: InstanceChange) -> Shortfall | None:
        """More is sent to an instance only when its GPU is as fast as that was planned for, less when it is at rest."""
        assert change.before and change.after
        if change.after.rate_per_second <= change.before.rate_per_second:
            return (
                Shortfall("step_under_way", "it carries more or less any moment") if change.id in self.pending else None
            )
        node = change.node
        if not is_raised(self.before.get(node), self.target.get(node, NOTHING), change.one.gpu):
            return Shortfall("clock_first", "its GPU gets a higher clock first")
        if self.observed.generations.get(node, 0) < self.observed.assigned_generations.get(node, 0):
            return Shortfall("clock_first", f"{node} has not taken its last assignment yet")
        return None

    def _handing_over(self, change: InstanceChange) -> bool:
        wanted = self.told.get(change.node, NOTHING).instances
        others = [one for one in wanted if one.service and one.gpu == change.one.gpu and one.id != change.id]
        return any(self._handed_over(one) for one in others)

    def room_for(self, change: InstanceChange, without: str = "") -> Shortfall | None:
        """What its new copy lacks on its GPU as it is now, or without some instance."""
        memory_gib = self.rules.memory_gib.get(change.node)
        if memory_gib is None or change.node in self.observed.lost:
            return Shortfall("no_node", f"{change.node} is not there")
        wanted = self.target.get(change.node, NOTHING)
        there = [one for one in self._holding[change.place] if one.id != without]
        return shortfall_on(GpuLimits.of(wanted, memory_gib, self.rules.jobs_per_gpu), change.one, there)

    def _on_trial(self, change: InstanceChange) -> Shortfall | None:
        key = change.one.profile_key(self.rules.gpu_types.get(change.node, ""))
        if key not in self._unproven or change.owner not in self._trusted:
            return None
        first = self.canaries.get(key)
        if first is None or first.instance == change.id or change.owner in self.urgent:
            return None
        return Shortfall(Reason.CANARY_FIRST, f"{key} is tried on {first.instance} first")

    def _obstacle_of_job(self, change: InstanceChange) -> Shortfall | None:
        """Jobs make room before services need it, and come when services have what they need."""
        if change.kind is ChangeKind.RETUNE:
            return None
        if change.kind is ChangeKind.STOP:
            return self._place_not_free(change)
        if change.kind is ChangeKind.START and self._jobs[change.owner]:
            return Shortfall("job_under_way", "its process elsewhere has not ended yet")
        if change.id in self.pending:
            return Shortfall("hand_over_under_way", "its process in the shape before has not ended yet")
        shrinks = change.before and (
            change.one.sm_percent < change.before.sm_percent or change.one.memory_gib < change.before.memory_gib
        )
        if not shrinks and self._coming[change.place]:
            return Shortfall("services_first", "services take what they need of the GPU first")
        return self.room_for(change)

    def _place_not_free(self, change: InstanceChange) -> Shortfall | None:
        """A job goes on where it is while its new place is taken and nobody needs the old one."""
        later = self._job_starts.get(change.owner)
        if later is None or self._coming[change.place]:
            return None
        if self._coming[later.place] or self.room_for(later, without=change.id):
            return Shortfall("job_waits", "it goes on until its new place is free")
        return None

    def make(self, change: InstanceChange) -> None:
        """Tell the node so, and count with it from now on."""
        one = change.one
        self.todo.pop(change.id, None)
        if change.takes_room and one.service:
            self._coming[change.place] -= 1
        self.told[change.node] = with_instance(
            self.told.get(change.node) or replace(self.target[change.node], instances=(), gpus=()), one.id, change.after
        )
        carries = self.ledger.now.get(one.id)
        if one.service and carries is not None:
            left = 0.0 if change.kind is ChangeKind.STOP else one.rate_per_second
            pending = self.pending.get(one.id)
            until_then = change.before if change.kind is ChangeKind.RESHAPE else pending.before if pending else None
            if until_then:
                left = min(left, until_then.rate_per_second)  # the lesser, until the new copy serves
            left = min(left, carries)  # what it carries more is counted when it has been told
            self.ledger.take(change.owner, carries - left, 1 if change.kind is ChangeKind.STOP else 0)
            self.ledger.now[one.id] = None if change.kind is ChangeKind.STOP else left
        match change.kind:
            case ChangeKind.STOP:
                self._leave(change.node, one)
            case ChangeKind.START | ChangeKind.RESHAPE:
                self._come(change)
            case ChangeKind.RETUNE if has_other_batch(change):
                self.pending.setdefault(one.id, PendingStep(self.now, change.before))

    def _leave(self, node: str, one: AssignedInstance) -> None:
        """It holds what it has until its node says that it is gone; in the middle of a hand-over that is twice."""
        copies = self._copies(one)
        self.pending.pop(one.id, None)
        held = msgspec.structs.replace(
            one,
            sm_percent=min(100.0, sum(copy.sm_percent for copy in copies)),
            memory_gib=sum(copy.memory_gib for copy in copies),
        )
        self.leaving[one.id] = Leaving(node, held, self.now)

    def _come(self, change: InstanceChange) -> None:
        one = change.one
        if change.kind is ChangeKind.RESHAPE or one.service:
            self.pending[one.id] = PendingStep(self.now, change.before, is_new=one.id in self.pending)
        if one.job:
            self._jobs[change.owner] += change.kind is ChangeKind.START
        else:
            key = one.profile_key(self.rules.gpu_types.get(change.node, ""))
            first = self.canaries.get(key)
            if key in self._unproven and change.owner in self._trusted and (not first or first.instance == one.id):
                self.canaries[key] = Canary(one.id, 0.0, change.before)
        self._holding[change.place].append(one)

"""The fleet while the next step is assembled: what uses room, what carries load, and what may change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property

import msgspec

from agents.contract.assignments import AssignedInstance
from agents.contract.fits import Shortfall
from app.control.domain.desired import Desired, FleetStatus, NodeDesired
from app.control.domain.events import Reason
from app.control.rollout.capacity import CapacityLedger
from app.control.rollout.changes import (
    NOTHING,
    ChangeKind,
    InstanceChange,
    components,
    has_other_batch,
    job_starts,
    places_taken,
    same_process,
)
from app.control.rollout.clocks import is_raised
from app.control.rollout.failing.starts import start_seconds
from app.control.rollout.room import GpuLimits, shortfall_on
from app.control.rollout.rules import Canary, Leaving, PendingStep, RolloutRules, RolloutState
from app.control.rollout.swapped import goes_to_host, make_change
from solvers.planning.problem import Place

ESTABLISHED = ("verifying", "warming", "routing", "ready")  # stages in which gateways may send requests to a copy
SHORT_SHARE = 0.9  # of the rate that a service is planned for: with less, it turns requests away


class Scene:
    """Finds the changes that are possible, and makes them one by one; each counts for the next."""

    def __init__(
        self, assigned: Desired, target: Desired, state: RolloutState, observed: FleetStatus, rules: RolloutRules,
        todo: Sequence[InstanceChange], now: float,
    ) -> None:  # fmt: skip
        self.before, self.target, self.observed, self.rules, self.now = assigned, target, observed, rules, now
        self.assigned: dict[str, NodeDesired] = dict(assigned)
        self.pending: dict[str, PendingStep] = dict(state.pending)
        self.leaving: dict[str, Leaving] = dict(state.leaving)
        self.canaries: dict[str, Canary] = dict(state.canaries)
        self.todo = {change.id: change for change in todo}
        self._unproven = (rules.unproven | state.canaries.keys()) - set(state.proven)
        services = {change.owner for change in todo if change.instance.service}
        self.all = todo
        on_trial = self._find_tried(state)
        self.ledger = CapacityLedger(services, assigned, target, {**on_trial, **state.pending}, observed, rules)
        self._with_trials = self.ledger  # counts all that serves, what is on trial, too
        if on_trial:
            self._with_trials = CapacityLedger(services, assigned, target, state.pending, observed, rules)
        if on_trial and self.urgent:  # their capacity is needed
            there = [line for wanted in assigned.values() for line in wanted.instances if line.id in on_trial]
            watched = {line.id: on_trial[line.id] for line in there if line.owner not in self.urgent}
            self.ledger = CapacityLedger(services, assigned, target, {**watched, **state.pending}, observed, rules)
        self._limits_of: dict[str, GpuLimits | None] = {}
        self._holding: dict[Place, list[AssignedInstance]] = defaultdict(list)
        self._jobs: dict[str, int] = defaultdict(int)  # instances of each job that are assigned or not gone yet
        self._trusted: set[str] = set()  # services with a proven copy that serves
        self._coming = places_taken(todo)
        self._job_starts = job_starts(todo)
        self._look(services)

    def _look(self, services: set[str]) -> None:
        places = {place for change in self.todo.values() for place in change.places}
        jobs = {change.owner for change in self.todo.values() if change.instance.job}
        for node, wanted in self.assigned.items():
            for instance in wanted.instances:
                owner = instance.owner
                if instance.job and owner in jobs:
                    self._jobs[owner] += 1
                is_serving = owner in services and self.ledger.now.get(instance.id) is not None
                if is_serving and self._is_proven(instance, node):
                    self._trusted.add(owner)
                for place in places.intersection([(node, gpu) for gpu in instance.all_gpus]):
                    self._holding[place] += self._copies(instance)
        for gone in self.leaving.values():
            if gone.instance.job:
                self._jobs[gone.instance.owner] += 1
            for gpu in gone.instance.all_gpus:
                self._holding[gone.node, gpu].append(gone.instance)

    def _find_tried(self, state: RolloutState) -> dict[str, PendingStep]:
        """Returns the copies of shapes on trial, whose capacity does not count: canaries, and what started since."""
        if not state.canaries:
            return {}
        found = {canary.instance: PendingStep(0.0, canary.before) for canary in state.canaries.values()}
        known = [
            (line, line.profile_key(self.rules.gpu_types.get(node, "")))
            for node, wanted in self.before.items()
            for line in wanted.instances
            if line.service and line.owner not in self.rules.hurried
        ]
        relying = {line.owner for line, key in known if key not in self._unproven}  # on something else
        for line, key in known:
            if key in state.canaries and line.owner in relying:
                found.setdefault(line.id, PendingStep(0.0, None))
        return found

    @cached_property
    def urgent(self) -> frozenset[str]:
        """Services without a serving copy, and those that block them: none of them waits for a canary."""
        return urgent(self.all, self.ledger, self.before, self.pending)

    def _is_proven(self, instance: AssignedInstance, node: str) -> bool:
        return instance.profile_key(self.rules.gpu_types.get(node, "")) not in self._unproven

    def _copies(self, instance: AssignedInstance) -> list[AssignedInstance]:
        before = self._find_old_shape(instance)
        return [instance, before] if before else [instance]

    def _find_old_shape(self, instance: AssignedInstance) -> AssignedInstance | None:
        """Returns the shape of the old process, if the instance still has one next to the new one."""
        pending = self.pending.get(instance.id)
        return pending.before if pending and pending.before and not same_process(pending.before, instance) else None

    def obstacle(self, change: InstanceChange) -> Shortfall | None:
        """Returns why this change cannot be made now; None if it can."""
        if change.node in self.observed.silent and change.node not in self.observed.lost:
            return Shortfall(Reason.NODE_SILENT, f"node {change.node} does not report")
        if change.kind is ChangeKind.START and change.id in self.leaving:
            return Shortfall("leaving", "the old copy has to end before it starts again")
        if change.instance.job:
            return self._obstacle_of_job(change)
        match change.kind:
            case ChangeKind.STOP:
                return self._would_lack(change, 0.0, 1) or self._may_be_last(change) or self._would_end_start(change)
            case ChangeKind.RETUNE:
                return self._too_early(change) or self._would_lack(change, change.instance.rate_per_second, 0)
            case ChangeKind.RESHAPE:
                if self._is_under_way(change) or self._handing_over(change):
                    return Shortfall("hand_over_under_way", "another hand-over on its GPU has to finish first")
                return (
                    self.room_for(change)
                    or self._check_trial(change)
                    or self._would_lack(change, change.instance.rate_per_second, 0)
                )
            case ChangeKind.START:
                return self.room_for(change) or self._check_trial(change)

    def _is_under_way(self, change: InstanceChange) -> bool:
        """Returns whether a starting copy is worth waiting for; one that has only just begun is replaced at once."""
        step = self.pending.get(change.id)
        if step is None or change.before is None:
            return False
        so_far = self.now - step.since
        return step.before is not None or so_far > start_seconds(change.before, change.node, self.rules) / 2

    def _would_end_start(self, change: InstanceChange) -> Shortfall | None:
        """Refuses to end a starting copy while its service lacks what it will carry.

        It ends where its start is in doubt, or where a service without any copy needs its place.
        """
        step = self.pending.get(change.id)
        is_starting = step is not None and (step.before is None or step.is_new) and not step.returns
        if step is None or not is_starting or self.ledger.share(change.owner) >= 1.0:
            return None
        here = set(change.places)
        if step.held_since or here & self.observed.ailing:
            return None
        others = (other for other in self.all if here.intersection(other.places) and other.takes_room)
        if any(other.owner in self.urgent - {change.owner} for other in others):
            return None
        return Shortfall(Reason.CAPACITY_AT_RISK, "it will serve soon, and its service lacks capacity until then")

    def _would_lack(self, change: InstanceChange, rate_after: float, instances: int) -> Shortfall | None:
        """Returns what the service would lack if the instance carried only this."""
        ledger = self.ledger if self.ledger.now.get(change.id) is not None else self._with_trials
        carries = ledger.now.get(change.id)
        if carries is None or ledger.spares(change.owner, max(0.0, carries - rate_after), instances):
            return None
        return Shortfall(Reason.CAPACITY_AT_RISK, ledger.spell(change.owner))

    def _may_be_last(self, change: InstanceChange) -> Shortfall | None:
        """Refuses to end the last copy of a service while it may serve unconfirmed, as after a restart of its agent."""
        status = self.observed.instances.get(change.id)
        may_serve = status is not None and status.stage in ESTABLISHED and change.id not in self.pending
        if not may_serve or self.ledger.serves(change.owner) or not self.ledger.wants(change.owner):
            return None
        return Shortfall(Reason.CAPACITY_AT_RISK, "no other copy of the service serves yet")

    def _too_early(self, change: InstanceChange) -> Shortfall | None:
        """Refuses more requests on a GPU that is slower than planned, and fewer requests while a step is pending."""
        assert change.before and change.after
        if change.after.rate_per_second <= change.before.rate_per_second:
            return (
                Shortfall("step_under_way", "its last step is not finished yet") if change.id in self.pending else None
            )
        node = change.node
        before, target = self.before.get(node), self.target.get(node, NOTHING)
        if not all(is_raised(before, target, gpu) for gpu in change.instance.all_gpus):
            return Shortfall("clock_first", "the clock of its GPU has to rise first")
        if self.observed.generations.get(node, 0) < self.observed.assigned_generations.get(node, 0):
            return Shortfall("clock_first", f"node {node} has not applied its last assignment yet")
        return None

    def _handing_over(self, change: InstanceChange) -> bool:
        wanted = self.assigned.get(change.node, NOTHING).instances
        here = set(change.instance.all_gpus)
        others = [line for line in wanted if line.service and line.id != change.id and here & {*line.all_gpus}]
        return any(self._find_old_shape(line) for line in others)

    def room_for(self, change: InstanceChange, without: str = "") -> Shortfall | None:
        """Returns what its new copy lacks on its GPU now, or without the given instance."""
        limits = self._limits(change.node)
        if limits is None or change.node in self.observed.lost:
            return Shortfall("no_node", f"node {change.node} is missing")
        for place in change.places:
            there = [instance for instance in self._holding[place] if instance.id != without]
            if found := shortfall_on(limits, change.instance, there):
                return found
        return None

    def _limits(self, node: str) -> GpuLimits | None:
        """Returns the limits of a node's GPUs; None if its memory is not known."""
        if node not in self._limits_of:
            memory_gib, wanted = self.rules.memory_gib.get(node), self.target.get(node, NOTHING)
            known = None if memory_gib is None else GpuLimits.of(wanted, memory_gib, self.rules.jobs_per_gpu)
            self._limits_of[node] = known
        return self._limits_of[node]

    def _check_trial(self, change: InstanceChange) -> Shortfall | None:
        key = change.instance.profile_key(self.rules.gpu_types.get(change.node, ""))
        if key not in self._unproven or change.owner not in self._trusted - self.rules.hurried:
            return None
        first = self.canaries.get(key)
        if first is None or first.instance == change.id or change.owner in self.urgent:
            return None
        gpu_type = self.rules.gpu_types.get(change.node, "")
        is_tried = change.before is not None and change.before.profile_key(gpu_type) == key
        if (change.kind is ChangeKind.START or is_tried) and self._with_trials.share(change.owner) < SHORT_SHARE:
            return None  # it takes nothing away that is proven, and without it requests are turned away
        return Shortfall(Reason.CANARY_FIRST, f"{key} is tested on another instance first")

    def _obstacle_of_job(self, change: InstanceChange) -> Shortfall | None:
        """Returns why a job cannot change now: jobs make room before services need it, and start after them."""
        if change.kind is ChangeKind.RETUNE:
            return None
        if change.kind is ChangeKind.STOP:
            return self._place_not_free(change)
        if change.kind is ChangeKind.START and self._jobs[change.owner]:
            return Shortfall("job_under_way", "its process on another GPU has not ended yet")
        if change.id in self.pending:
            return Shortfall("hand_over_under_way", "its old process has not ended yet")
        shrinks = change.before and (
            change.instance.sm_percent < change.before.sm_percent
            or change.instance.memory_gib < change.before.memory_gib
        )
        if not shrinks and self._service_comes_to(change.places):
            return Shortfall("services_first", "services that start on the GPU come first")
        return self.room_for(change)

    def _place_not_free(self, change: InstanceChange) -> Shortfall | None:
        """Returns the obstacle of a job that keeps running while its new place is taken and its old one not needed."""
        later = self._job_starts.get(change.owner)
        if later is None or self._service_comes_to(change.places):
            return None
        if self._service_comes_to(later.places) or self.room_for(later, without=change.id):
            return Shortfall("job_waits", "it keeps running until its new place is free")
        return None

    def _service_comes_to(self, places: Sequence[Place]) -> bool:
        """Returns whether a copy of a service is to come to any of these GPUs."""
        return any(self._coming[place] for place in places)

    def make(self, change: InstanceChange) -> None:
        """Makes the change in the assignment; later changes count with it."""
        instance = change.instance
        self.todo.pop(change.id, None)
        if change.takes_room and instance.service:
            self._coming.subtract(change.places)
        target = self.target.get(change.node, NOTHING)
        before = self.assigned.get(change.node) or replace(target, instances=(), gpus=(), swapped=())
        self.assigned[change.node] = make_change(before, change, target)
        if instance.service:
            self._take(self.ledger, change)
            if self._with_trials is not self.ledger:
                self._take(self._with_trials, change)
        match change.kind:
            case ChangeKind.STOP:
                self._leave(change.node, instance)
            case ChangeKind.START | ChangeKind.RESHAPE:
                self._come(change)
            case ChangeKind.RETUNE if has_other_batch(change):
                self.pending.setdefault(instance.id, PendingStep(self.now, change.before))

    def _take(self, ledger: CapacityLedger, change: InstanceChange) -> None:
        """Subtracts what the instance carries no more once the change is made."""
        instance, carries = change.instance, ledger.now.get(change.id)
        if carries is None:
            return
        remaining = 0.0 if change.kind is ChangeKind.STOP else instance.rate_per_second
        pending = self.pending.get(instance.id)
        until_then = change.before if change.kind is ChangeKind.RESHAPE else pending.before if pending else None
        if until_then:
            remaining = min(remaining, until_then.rate_per_second)  # the smaller rate, until the new copy serves
        remaining = min(remaining, carries)  # a higher rate counts once it is assigned
        ledger.take(change.owner, carries - remaining, 1 if change.kind is ChangeKind.STOP else 0)
        ledger.now[instance.id] = None if change.kind is ChangeKind.STOP else remaining

    def _leave(self, node: str, instance: AssignedInstance) -> None:
        """Notes that it uses its room until its node reports it gone, during a hand-over that of both copies."""
        copies = self._copies(instance)
        self.pending.pop(instance.id, None)
        held = msgspec.structs.replace(
            instance,
            sm_percent=min(100.0, sum(copy.sm_percent for copy in copies)),
            memory_gib=sum(copy.memory_gib for copy in copies),
        )
        swaps = goes_to_host(instance.id, self.target.get(node, NOTHING))
        self.leaving[instance.id] = Leaving(node, held, self.now, swaps=swaps)

    def _come(self, change: InstanceChange) -> None:
        instance = change.instance
        if change.kind is ChangeKind.RESHAPE or instance.service:
            self.pending[instance.id] = PendingStep(self.now, change.before, is_new=instance.id in self.pending)
        if instance.job:
            self._jobs[change.owner] += change.kind is ChangeKind.START
        else:
            key = instance.profile_key(self.rules.gpu_types.get(change.node, ""))
            first = self.canaries.get(key)
            is_tried = key in self._unproven and change.owner in self._trusted - self.rules.hurried
            if is_tried and (not first or first.instance == instance.id):
                self.canaries[key] = Canary(instance.id, 0.0, change.before)
        for place in change.places:
            self._holding[place].append(instance)


def urgent(
    todo: Sequence[InstanceChange], ledger: CapacityLedger, assigned: Desired, pending: Iterable[str]
) -> frozenset[str]:
    """Returns the services that wait without a copy that serves or starts, and all whose changes can block them."""
    waiting = {change.owner for change in todo if change.takes_room and change.instance.service}
    starved = {owner for owner in waiting if not ledger.serves(owner)}
    if not starved:
        return frozenset()
    ids = set(pending)
    starved -= {instance.owner for wanted in assigned.values() for instance in wanted.instances if instance.id in ids}
    parts = [{change.owner for change in part} for part in components(todo)]
    return frozenset().union(*(owners for owners in parts if owners & starved))

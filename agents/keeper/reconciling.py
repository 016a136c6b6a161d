"""Brings the copies closer to the assignment: decides which start and which stop, and records each before acting."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from agents.contract.assignments import AssignedInstance, Assignment
from agents.contract.fields import GATEWAY_BEHIND
from agents.contract.fits import GpuRules, Shortfall
from agents.keeper.copies import NodeCopy, Stage, largest_batch, same_process_serves
from agents.keeper.decide import CopyDecision, HeldStart, NodeConstraints, WantedInstance, decide
from agents.keeper.exits import DONE, FAILED, JobExits
from agents.keeper.failures import Failures
from agents.keeper.filler import Filler
from agents.keeper.ledger import CopyLedger
from agents.keeper.ports import PortMemory, free_port
from agents.keeper.room import excess_sm_percent
from agents.keeper.routing import GatewayRoutes
from agents.keeper.steps import Steps
from agents.seams.device import GpuDevice


@dataclass(frozen=True, slots=True)
class Situation:
    """The state of the node's devices, as far as the keeper must act on it."""

    gpus: Mapping[int, GpuDevice] = field(default_factory=dict)  # by the index that assignments use
    fenced: Mapping[str, str] = field(default_factory=dict)  # by UUID: why nothing is started there
    draining: frozenset[str] = frozenset()  # GPUs that are to be emptied
    stopped_jobs: frozenset[str] = frozenset()  # jobs that made room for services
    room_gib: Mapping[str, float] = field(default_factory=dict)  # by UUID, where it is less than the whole memory


class Reconciler:
    """Turns an assignment into recorded starts and stops; remembers which instances have been ready here."""

    def __init__(
        self,
        ledger: CopyLedger,
        filler: Filler,
        failures: Failures,
        steps: Steps,
        incarnation: int,
        host: str,
        exits: JobExits,
    ) -> None:
        self._ledger = ledger
        self._filler = filler
        self._failures = failures
        self._steps = steps
        self._exits = exits
        self._incarnation = incarnation
        self._host = host
        self._established: dict[str, AssignedInstance] = {}
        self._ports = PortMemory()
        self._counter = 0
        self.handed_over = 0

    def reconcile(
        self, assignment: Assignment, situation: Situation, contact: bool, now: float
    ) -> tuple[HeldStart, ...]:
        """Records the next moves towards the assignment; returns what is held back and why."""
        wanted = _match_gpus(assignment.instances, situation)
        copies = self._ledger.copies()
        self._note_ports(copies)
        self._follow(wanted, copies)
        waiting = _match_gpus(assignment.swapped, situation)
        constraints = self._constraints(wanted, waiting, situation, contact, now)
        decision = decide(wanted, copies, constraints, GpuRules.of(assignment))
        for taken_down in decision.take_down:
            copy = self._ledger.get(taken_down.copy)
            if copy is None:
                continue
            stage = Stage.DRAINING if copy.served and copy.stage in (Stage.ROUTING, Stage.READY) else Stage.ENDING
            if taken_down.reason == "replaced":
                self.handed_over += 1
            self._ledger.record(copy.at(stage, now, taken_down.reason))
        self._swap(wanted, decision, now)
        for start in decision.start:
            self._begin(start.wanted, now)
        self._end_late_handovers(assignment.handover_seconds, now)
        return (*decision.held, *_list_over(waiting, constraints.resting))

    def establish(self, copy: NodeCopy) -> None:
        """Notes that an instance has been ready here as it is assigned now."""
        self._established[copy.instance] = copy.wanted

    def is_established(self, copy: NodeCopy) -> bool:
        """Returns whether the copy's instance has been ready here in the same shape."""
        return self._established.get(copy.instance) == copy.wanted

    def held_by_gateway(self, routes: GatewayRoutes) -> tuple[HeldStart, ...]:
        """Returns the copies that wait for a gateway: one that does not acknowledge, or has not taken their drain."""
        copies = self._ledger.copies()
        if routes.away:
            reason = Shortfall("gateway_away", f"the gateway does not acknowledge routes: {routes.away}"[:500])
            waiting = (copy for copy in copies if copy.stage in (Stage.ROUTING, Stage.DRAINING))
            return tuple(HeldStart(copy.instance, reason) for copy in waiting)
        states = [(copy, routes.in_force(copy)) for copy in copies if copy.stage is Stage.DRAINING]
        return tuple(
            HeldStart(copy.instance, Shortfall(GATEWAY_BEHIND, state.waits_for[:500]))
            for copy, state in states
            if state is not None and state.waits_for
        )

    def _constraints(
        self,
        wanted: Sequence[WantedInstance],
        waiting: Sequence[WantedInstance],
        situation: Situation,
        contact: bool,
        now: float,
    ) -> NodeConstraints:
        instances = [want.instance for want in wanted]
        known = [*instances, *(want.instance for want in waiting)]  # a job that waits is not forgotten
        as_wanted = {instance.id: instance for instance in instances}
        self._established = {
            name: instance for name, instance in self._established.items() if as_wanted.get(name) == instance
        }
        return NodeConstraints(
            memory_gib={gpu.uuid: gpu.memory_gib for gpu in situation.gpus.values()} | dict(situation.room_gib),
            fenced=situation.fenced,
            recycled=self._steps.recycled,
            refused=self._filler.refused(instances),
            resting={**self._failures.resting(known, now), **self._exits.over(known)},
            stopped_jobs=situation.stopped_jobs,
            contact=contact,
            established=self._established.keys(),
            swapped=frozenset(want.instance.id for want in waiting),
            measuring=self._filler.measuring,
            called_away={copy.id for copy in self._ledger.copies() if self._must_leave(copy, now)},
        )

    def _must_leave(self, copy: NodeCopy, now: float) -> bool:
        """Returns whether a copy that somebody else ends must stop now: its successor is late, or it serves nothing."""
        if copy.stays_until is None:
            return False
        return now > copy.stays_until or not copy.served or self._filler.filled(copy) is None

    def _swap(self, wanted: Sequence[WantedInstance], decision: CopyDecision, now: float) -> None:
        """Records which jobs move to host memory, and which return from there as they are assigned now."""
        for name in decision.swap_out:
            if (copy := self._ledger.get(name)) is not None:
                self._ledger.record(copy.at(Stage.SWAPPING, now))
        as_wanted = {want.instance.id: want.instance for want in wanted}
        for name in decision.bring_back:
            if (copy := self._ledger.get(name)) is not None:
                returning = msgspec.structs.replace(copy, wanted=as_wanted[copy.instance])
                self._ledger.record(returning.at(Stage.RETURNING, now))

    def _follow(self, wanted: Sequence[WantedInstance], copies: Collection[NodeCopy]) -> None:
        """Gives a copy the new assignment of its instance where its process can serve that without a restart."""
        by_id = {want.instance.id: want for want in wanted}
        for copy in copies:
            want = by_id.get(copy.instance)
            if want is None or want.devices != copy.devices or want.instance == copy.wanted or not copy.rising:
                continue
            if same_process_serves(copy, want.instance):
                self._ledger.record(msgspec.structs.replace(copy, wanted=want.instance))

    def _note_ports(self, copies: Collection[NodeCopy]) -> None:
        """Remembers where copies serve; those that an earlier agent's journal lists as ending may have served, too."""
        served = (Stage.READY, Stage.ENDING) if self._ports.is_new else (Stage.READY,)
        for copy in sorted(copies, key=lambda copy: copy.born):
            if copy.served:
                self._ports.note(copy.instance, copy.port, copy.stage in served)
        self._ports.is_new = False

    def _begin(self, wanted: WantedInstance, now: float) -> None:
        self._counter += 1
        copies = self._ledger.copies()
        taken = {port for copy in copies for port in (copy.port, copy.metrics_port)}
        taken -= {copy.port for copy in copies if copy.instance == wanted.instance.id and copy.stage is Stage.ENDING}
        try:
            port = self._ports.choose(self._host, wanted.instance.id, taken)
            metrics_port = free_port(self._host, {*taken, port})
        except OSError as error:  # other programs listen on all of them
            self._failures.note(wanted.instance, "no_port", str(error), 0.0, now)
            return
        copy = NodeCopy(
            id=f"{wanted.instance.id}.{self._incarnation:x}.{self._counter:x}",
            wanted=wanted.instance,
            gpu=wanted.gpu,
            port=port,
            metrics_port=metrics_port,
            largest_batch=largest_batch(wanted.instance),
            born=now,
            since=now,
            gpus=wanted.gpus,
        )
        self._ledger.record(copy)

    def _end_late_handovers(self, handover_seconds: float, now: float) -> None:
        """Stops a new copy whose hand-over holds a GPU above 100 SM% for too long, unless it may have requests."""
        copies = self._ledger.copies()
        for gpu in {copy.gpu for copy in copies if _is_new(copy)}:
            on_gpu = [copy for copy in copies if gpu in copy.devices]
            if not excess_sm_percent(on_gpu):
                continue
            for copy in on_gpu:
                if _is_new(copy) and now - copy.born > handover_seconds:
                    message = f"not warm within {handover_seconds:g} s"
                    self._steps.fail_copy(copy, "handover_timeout", message, now)


def _list_over(waiting: Sequence[WantedInstance], resting: Mapping[str, tuple[str, str]]) -> Iterator[HeldStart]:
    """Yields the jobs whose processes have ended for good in host memory, or on their way there."""
    for name in (want.instance.id for want in waiting):
        if name in resting and resting[name][0] in (DONE, FAILED):
            yield HeldStart(name, Shortfall(*resting[name]))


def _is_new(copy: NodeCopy) -> bool:
    return copy.rising and copy.stage not in (Stage.ROUTING, Stage.READY, Stage.RETURNING)


def _match_gpus(instances: Sequence[AssignedInstance], situation: Situation) -> list[WantedInstance]:
    """Returns assigned instances on the GPUs that their indexes mean, without those on GPUs being drained."""
    found = []
    for instance in instances:
        there = [situation.gpus.get(index) for index in instance.all_gpus]
        uuids = tuple(gpu.uuid if gpu else "" for gpu in there)
        if not situation.draining.intersection(uuids):
            found.append(WantedInstance(instance, uuids[0], uuids if instance.is_wide else ()))
    return found

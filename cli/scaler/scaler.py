"""One scaler, possibly of several: whichever holds the lease settles what is in doubt, decides, records and writes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from app.control.domain.leading import Deposed
from app.control.record.scale_store import ScaleStore
from app.store.plans.scale_plans import find_wait_seconds
from app.store.plans.scale_rows import ScalePlan, ScaleRow, ScaleState, ScaleTarget
from cli.scaler.drafting import EngineLook
from cli.scaler.measures import DECIDED_AT, LEADS, LOADS_UNREAD, LOOKS_FAILED, WRITES
from cli.scaler.reaching import LookFailed
from clusters.estate import WorkloadName
from clusters.scaling.adoption import WantedReplicas
from clusters.scaling.outcomes import OpenWrite, ReplicaEngine, WriteOutcome

WRITES_AT_ONCE = 8  # a workload whose answers take long holds up no other

OpenEngine = Callable[[], AbstractContextManager[ReplicaEngine]]

log = logging.getLogger(__name__)


class EngineWatch(Protocol):
    """What reads an engine and decides on its workloads."""

    def look(self) -> EngineLook:
        """Decides by what is there now; LookFailed where that cannot be read."""


@dataclass(slots=True)
class Scaler:
    """What a scaler does in turn. Only the holder of the lease acts."""

    store: ScaleStore
    watch: EngineWatch
    open_engine: OpenEngine
    clock: Callable[[], float]
    seconds: float  # between two cycles
    step_seconds: float  # between two writes to one workload, by all scalers together
    _look: EngineLook | None = None
    _plan: int = 0  # the generation that was made of this look
    _epoch: int = 0  # of the last cycle
    _cycled_at: float = float("-inf")
    _away: str = ""  # what did not answer at the last look
    _doubts: dict[ScaleTarget, tuple[int, float]] = field(default_factory=dict)  # how often asked, and when again

    def lead(self) -> bool:
        """Takes or renews the lease."""
        before = self.store.epoch
        leads = self.store.lead()
        LEADS.set(leads)
        if self.store.epoch != before:
            log.info("leader" if leads else "standing_by", extra={"epoch": self.store.epoch})
        return leads

    def step(self) -> None:
        """Runs a cycle if one is due, as it is at once under a new lease; else writes what was approved meanwhile."""
        epoch = self.store.epoch
        is_due = epoch != self._epoch or self.clock() >= self._cycled_at + self.seconds
        if epoch != self._epoch:
            self._look = None
            self._doubts.clear()
        self._epoch = epoch
        if not epoch:
            return
        try:
            if is_due:
                self._cycled_at = self.clock()
                self._cycle(epoch)
            elif self._look:
                plan = self.store.read()
                if plan and plan.generation == self._plan:
                    self._carry_out(epoch, plan, self._look)
        except LookFailed as failed:
            self._look = None
            LOOKS_FAILED.labels(failed.what).inc()
            if self._away != failed.what:
                log.warning(f"{failed.what}_away", extra={"error": str(failed)})
            self._away = failed.what
        except Deposed as deposed:
            log.warning("deposed", extra={"reason": str(deposed)})
            self.store.epoch, self._look = 0, None
            LEADS.set(0)

    def _cycle(self, epoch: int) -> None:
        """Settles writes in doubt, decides by what is there now, records it, and writes what may be written."""
        self._look = None  # until its plan is recorded
        self._settle_doubts(epoch)
        look = self._decide()
        plan = self.store.record(epoch, look.drafts)
        if plan.generation != self._plan:
            log.info("scale_plan", extra={"generation": plan.generation, "workloads": len(plan.rows)})
        DECIDED_AT.set_to_current_time()
        self._plan, self._look = plan.generation, look
        self._carry_out(epoch, plan, look)

    def _decide(self) -> EngineLook:
        look = self.watch.look()
        if self._away:
            log.info(f"{self._away}_back")
        self._away = ""
        LOADS_UNREAD.inc(sum(draft.is_blind for draft in look.drafts))
        return look

    def _carry_out(self, epoch: int, plan: ScalePlan, look: EngineLook) -> None:
        """Writes what is approved, several at once; first what was not refused before."""
        if plan.pause:
            return
        due = [row for row in plan.rows if _is_due(row, plan)]
        written = self.store.find_written(self.step_seconds) if due else set()
        due = sorted((row for row in due if row.target not in written), key=lambda row: row.tries)
        for row, outcome in self._ask(due, partial(self._write, epoch, look)):
            self._settle(epoch, row, outcome)

    def _write(self, epoch: int, look: EngineLook, engine: ReplicaEngine, row: ScaleRow) -> WriteOutcome:
        if not look.is_recent(self.clock()):
            return WriteOutcome("untried", "the next look decides again")
        assert row.wanted is not None, f"{row.target} is approved without a number"
        wanted = WantedReplicas(look.adopted[row.target], row.wanted)
        return engine.write(wanted, partial(self._begin_write, epoch, row, look))

    def _begin_write(self, epoch: int, row: ScaleRow, look: EngineLook, version: str) -> bool:
        """Returns whether the write may be sent: this process may have been paused since the look."""
        return look.is_recent(self.clock()) and self.store.begin_write(epoch, row, version)

    def _settle_doubts(self, epoch: int) -> None:
        """Says what became of writes without a recorded answer, those of an earlier leader among them.

        One that stays open is asked after less and less often: meanwhile its workload is held, and others go on.
        """
        now = self.clock()
        due = [row for row in self.store.find_writing() if self._doubts.get(row.target, (0, now))[1] <= now]
        for row, outcome in self._ask(due, lambda engine, row: engine.settle(_make_open_write(row))):
            tries, _ = self._doubts.pop(row.target, (0, now))
            if outcome.is_open:
                self._doubts[row.target] = tries + 1, self.clock() + find_wait_seconds(tries)
            self._settle(epoch, row, outcome)

    def _ask(
        self, rows: Sequence[ScaleRow], ask: Callable[[ReplicaEngine, ScaleRow], WriteOutcome]
    ) -> Iterator[tuple[ScaleRow, WriteOutcome]]:
        """Yields what the engine says of each row as soon as it is known."""
        if not rows:
            return
        with self.open_engine() as engine, ThreadPoolExecutor(WRITES_AT_ONCE) as threads:
            asked = {threads.submit(ask, engine, row): row for row in rows}
            try:
                for answer in as_completed(asked):
                    yield asked[answer], answer.result()
            finally:
                threads.shutdown(cancel_futures=True)

    def _settle(self, epoch: int, row: ScaleRow, outcome: WriteOutcome) -> None:
        if outcome.state == "untried":
            return
        state = _find_state(outcome)
        WRITES.labels("in doubt" if outcome.is_open else state).inc()
        log.info(
            "replicas", extra={
                "workload": str(row.target), "generation": row.generation, "from": row.replicas, "to": row.wanted,
                "version": outcome.version, "outcome": outcome.state, "reason": outcome.reason,
            },
        )  # fmt: skip
        if not outcome.is_open:
            self.store.settle(epoch, row, state, outcome.reason, outcome.asked_seconds)


def _is_due(row: ScaleRow, plan: ScalePlan) -> bool:
    is_approved = row.state in (ScaleState.APPROVED, ScaleState.REFUSED)
    return is_approved and (row.retry_at is None or row.retry_at <= plan.read_at)


def _find_state(outcome: WriteOutcome) -> ScaleState:
    if outcome.state == "written":
        return ScaleState.WRITTEN
    return ScaleState.REFUSED if outcome.is_refused else ScaleState.OVERTAKEN


def _make_open_write(row: ScaleRow) -> OpenWrite:
    """Returns a write by what was recorded of it before it was sent."""
    assert row.wanted is not None, f"{row.target} is being written without a number"
    return OpenWrite(WorkloadName(*row.target), row.object_generation, row.resource_version, row.wanted)

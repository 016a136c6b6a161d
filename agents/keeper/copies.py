"""A copy: one process of an instance in one shape. During a hand-over an instance has two of them."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from agents.contract.assignments import AssignedInstance
from agents.runtime import Running
from agents.talk.copy_client import CopyPlace


class Stage(StrEnum):
    """The progress of a copy in starting or stopping. A stage is on disk before its action is taken."""

    STARTING = "starting"  # its process may have been started
    VERIFYING = "verifying"  # it runs; are its limits in force?
    WARMING = "warming"  # its limits are in force; does it answer requests?
    ROUTING = "routing"  # the gateway may know it
    READY = "ready"  # the gateway routes to it, or it needs no route
    SWAPPING = "swapping"  # asked to move to host memory; it holds its GPU until it has
    SWAPPED = "swapped"  # its process is stopped, waits in host memory, and holds nothing of its GPU
    RETURNING = "returning"  # it holds its GPU again; has its process gone on?
    DRAINING = "draining"  # it gets no new requests
    ENDING = "ending"  # it has answered every request and is being stopped
    GONE = "gone"  # its process, memory and route are gone


UP = (Stage.STARTING, Stage.VERIFYING, Stage.WARMING, Stage.ROUTING, Stage.READY, Stage.RETURNING)
BEFORE_ROUTING = (Stage.STARTING, Stage.VERIFYING, Stage.WARMING)  # memory is still being allocated
AWAY = (Stage.SWAPPING, Stage.SWAPPED)  # on their way to host memory, or there
DOWN = (Stage.DRAINING, Stage.ENDING, Stage.GONE)
ROUTED = (Stage.ROUTING, Stage.READY, Stage.DRAINING, Stage.ENDING)  # the gateway may know it


class Spell(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A time in which a copy held its share, until it was swapped out."""

    number: int
    started_at: datetime
    ended_at: datetime
    evidence: str = ""


class NodeCopy(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A copy as the journal keeps it. `wanted` is the instance as it was assigned when the copy began."""

    id: str
    wanted: AssignedInstance
    gpu: str  # UUID
    stage: Stage = Stage.STARTING
    port: int = 0
    metrics_port: int = 0
    largest_batch: float = 0.0  # the batch that its memory was sized for
    running: Running | None = None
    born: float = 0.0  # clocks.seconds() at its beginning
    since: float = 0.0  # clocks.seconds() when its stage began
    stays_until: float | None = None  # clocks.seconds() until which its successor has time, if somebody else ends it
    outside_since: float | None = None  # clocks.seconds() when it was first seen on the device without MPS
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None  # when it began to hold its share; after a return, when it began again
    ended_at: datetime | None = None
    evidence: str = ""
    acknowledged: str = ""  # usage that the control plane has: opened, closed
    gpus: tuple[str, ...] = ()  # UUIDs of all its GPUs, where it has several; `gpu` is the first
    spell: int = 0  # how often it has returned from host memory
    earlier: tuple[Spell, ...] = ()  # usage before its last return that the control plane does not have yet

    @property
    def instance(self) -> str:
        return self.wanted.id

    @property
    def listens_at(self) -> CopyPlace:
        running = self.running
        return CopyPlace((running and running.port) or self.port, running.host if running else "")

    @property
    def devices(self) -> tuple[str, ...]:
        """The UUIDs of all its GPUs."""
        return self.gpus or (self.gpu,)

    @property
    def settled(self) -> bool:
        """Returns whether the copy is gone and its usage is fully accounted for, so that it can be forgotten."""
        told = self.acknowledged == "closed" or self.started_at is None
        return self.stage is Stage.GONE and told and not self.earlier

    @property
    def served(self) -> bool:
        """Returns whether the copy answers requests; a job does not."""
        return bool(self.wanted.service)

    @property
    def service(self) -> str:
        return self.wanted.owner

    @property
    def rising(self) -> bool:
        """Returns whether it is there, or will be, and nobody ends it."""
        return self.stage in UP and self.stays_until is None

    def at(self, stage: Stage, now: float, reason: str = "", message: str = "") -> NodeCopy:
        """Returns the copy at `stage`; the reason for stopping it is kept to the end."""
        return msgspec.structs.replace(
            self, stage=stage, since=now, reason=reason or self.reason, message=message or self.message
        )

    def acknowledge(self, spell: int, what: str) -> NodeCopy:
        """Returns the copy once the control plane has its usage of one spell as `opened` or `closed`."""
        if spell == self.spell:
            return msgspec.structs.replace(self, acknowledged=what)
        if what != "closed":
            return self  # it has returned since, and its end will be reported
        earlier = tuple(before for before in self.earlier if before.number != spell)
        return msgspec.structs.replace(self, earlier=earlier)

    def begin_spell(self, now: datetime) -> NodeCopy:
        """Returns the copy as it holds its share again; what it held before is kept until it is acknowledged."""
        assert self.started_at is not None
        assert self.ended_at is not None
        before = Spell(self.spell, self.started_at, self.ended_at, self.evidence)
        return msgspec.structs.replace(
            self,
            spell=self.spell + 1,
            earlier=self.earlier if self.acknowledged == "closed" else (*self.earlier, before),
            started_at=max(now, self.ended_at),
            ended_at=None,
            evidence="",
            acknowledged="",
        )


def same_process_serves(copy: NodeCopy, wanted: AssignedInstance) -> bool:
    """Returns whether the copy's process can serve `wanted` without a restart.

    SM and memory limits of a process never change, and its memory was sized for its largest batch.
    """
    running = copy.wanted
    return (
        running.template == wanted.template
        and (running.args or {}) == (wanted.args or {})
        and running.runtime == wanted.runtime
        and running.variant == wanted.variant
        and running.sm_percent == wanted.sm_percent
        and running.memory_gib == wanted.memory_gib
        and largest_batch(wanted) <= copy.largest_batch
    )


def largest_batch(instance: AssignedInstance) -> float:
    return instance.batch.max if instance.batch else 0.0

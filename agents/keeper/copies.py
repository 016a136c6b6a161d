"""A copy: one process of an instance in one shape. While it is handed over an instance has two of them."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from agents.contract import AssignedInstance
from agents.runtime import Running


class Stage(StrEnum):
    """How far a copy is on its way up, and on its way down. Each is on disk before what it stands for is done."""

    STARTING = "starting"  # a process may have been started
    VERIFYING = "verifying"  # it runs; is it limited?
    WARMING = "warming"  # it is limited; does it answer as it will answer?
    ROUTING = "routing"  # the gateway may know it
    READY = "ready"  # it is known to the gateway, or needs none
    DRAINING = "draining"  # it gets no new requests
    ENDING = "ending"  # it has answered all and is told to go
    GONE = "gone"  # process and memory are gone, and so is its route


UP = (Stage.STARTING, Stage.VERIFYING, Stage.WARMING, Stage.ROUTING, Stage.READY)
DOWN = (Stage.DRAINING, Stage.ENDING, Stage.GONE)
ROUTED = (Stage.ROUTING, Stage.READY, Stage.DRAINING, Stage.ENDING)  # the gateway may know it


class NodeCopy(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is known of a copy, as the journal keeps it. `wanted` is the instance as it was when the copy began."""

    id: str
    wanted: AssignedInstance
    gpu: str  # UUID
    stage: Stage = Stage.STARTING
    port: int = 0
    metrics_port: int = 0
    largest_batch: float = 0.0  # that its memory was given for
    running: Running | None = None
    born: float = 0.0  # clocks.seconds() when it began
    since: float = 0.0  # the same, of its stage
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None  # when it began to hold its share
    ended_at: datetime | None = None
    evidence: str = ""
    told: str = ""  # what the control plane has acknowledged of its usage: opened, closed

    @property
    def instance(self) -> str:
        return self.wanted.id

    @property
    def settled(self) -> bool:
        """Whether nobody needs to hear of it any more: it is gone, and its usage accounted for."""
        return self.stage is Stage.GONE and (self.told == "closed" or self.started_at is None)

    @property
    def served(self) -> bool:
        """Whether it answers requests: a job does not."""
        return bool(self.wanted.service)

    @property
    def service(self) -> str:
        return self.wanted.owner

    @property
    def rising(self) -> bool:
        return self.stage in UP

    def at(self, stage: Stage, now: float, reason: str = "", message: str = "") -> NodeCopy:
        """The same copy one stage further; why it falls is remembered to the end."""
        return msgspec.structs.replace(
            self, stage=stage, since=now, reason=reason or self.reason, message=message or self.message
        )


def same_process_serves(copy: NodeCopy, wanted: AssignedInstance) -> bool:
    """Whether the copy's process can become `wanted` without another start.

    The limits of SM and memory are those of a process for ever, and its largest batch was what its memory was for.
    """
    running = copy.wanted
    return (
        running.template == wanted.template
        and (running.args or {}) == (wanted.args or {})
        and running.variant == wanted.variant
        and running.sm_percent == wanted.sm_percent
        and running.memory_gib == wanted.memory_gib
        and largest_batch(wanted) <= copy.largest_batch
    )


def largest_batch(instance: AssignedInstance) -> float:
    return instance.batch.max if instance.batch else 0.0

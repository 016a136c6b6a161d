"""Composes a report from the agent's memory, its node's state, and the news that the control plane must receive."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from agents.contract.reports import Answer, GpuMinute, Inventory, Report
from agents.host import clocks
from agents.host.deadline import printable
from agents.node.reporting import ReportBody
from agents.node.state_folder import AgentMemory

MOST_LOG_LINES = 20  # for one answer

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReportHeading:
    """The fields that distinguish one report from the next."""

    node: str
    sequence: int
    at: datetime
    assignment_version: int
    stale_assignments: int


def compose_report(
    heading: ReportHeading, memory: AgentMemory, body: ReportBody, minute: datetime, inventory: Inventory | None
) -> Report:
    """Returns the report of that minute; `inventory` only if it has changed."""
    return Report(
        node=heading.node,
        incarnation=memory.incarnation,
        sequence=heading.sequence,
        at=heading.at,
        minute=minute,
        boot_id=clocks.boot_id(),
        health=find_node_health(body.gpus),
        epoch=memory.epoch,
        generation=memory.generation,
        assignment_version=heading.assignment_version,
        stale_assignments=heading.stale_assignments,
        inventory=inventory,
        **msgspec.structs.asdict(body),
    )


def find_node_health(gpus: Sequence[GpuMinute]) -> str:
    """Returns the health of the node's least healthy GPU; a node has failed only if all its GPUs have."""
    if gpus and all(gpu.health == "failed" for gpu in gpus):
        return "failed"
    return "ok" if all(gpu.health == "ok" for gpu in gpus) else "degraded"


def log_dropped(answer: Answer) -> None:
    """Logs what the control plane has dropped of a report, but for what it takes later."""
    refused = [dropped for dropped in answer.dropped if dropped.reason != "later"]
    for dropped in refused[:MOST_LOG_LINES]:
        log.warning(
            "the control plane dropped a part of the report: %s (%s)",
            printable(dropped.what[:200]),
            printable(dropped.reason[:200]),
        )

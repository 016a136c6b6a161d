"""A simulated node's reports, built by the agent's own functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from agents.contract.reports import Copy as ReportedCopy
from agents.contract.reports import GpuFacts, GpuMinute, InstanceMinute, Inventory, Report
from agents.control.composing import find_node_health
from agents.keeper.copies import NodeCopy, Stage
from agents.node import reporting
from agents.node.report_minute import CopyTotals, ReportMinute
from simulation.fleet.node import LightNode

VERSION = "0.1.0"
TEMPLATES = ("gpuwright-serve", "gpuwright-train", "triton", "vllm")


def inventory(node: LightNode) -> Inventory:
    kind = node.truth.kind(node.gpu_type)
    facts = tuple(
        GpuFacts(
            index=index,
            uuid=uuid,
            gpu_type=node.gpu_type,
            memory_gib=kind.memory_gib,
            address=f"00000000:{index + 1:02X}:00.0",
        )
        for index, uuid in enumerate(node.uuids)
    )
    return Inventory(facts, () if brings_others(node) else TEMPLATES, VERSION)


def brings_others(node: LightNode) -> bool:
    """Returns whether its world has templates or runtimes of its own: then the node lists none, and so offers all."""
    problem = node.truth.problem
    variants = {variant.template for known in problem.models.values() for variant in known}
    return not {*variants, *(job.template for job in problem.jobs.values())} <= {None, *TEMPLATES}


class Speaker:
    """Numbers a node's reports, and sends its inventory once."""

    def __init__(self, node: LightNode) -> None:
        self.node = node
        self._sequence = 0
        self._incarnation = node.memory.incarnation
        self._inventory_sent = False

    def reports(self) -> list[Report]:
        """Returns the last minute's end, if one is due, and the current state."""
        finished, self.node.finished = self.node.finished, None
        self.node.news = False
        found = [self._report(*finished)] if finished is not None else []
        return [*found, self._report(self.node.minute, self.node.totals())]

    def start_above(self, incarnation: int) -> None:
        """Continues above a later start that the control plane knows of."""
        if incarnation > self.node.memory.incarnation:
            self.node.memory.incarnation = incarnation + 1

    def note_stored(self, report: Report, dropped: Sequence[str]) -> None:
        """Notes that the report was stored."""
        if report.inventory is not None:
            self._inventory_sent = True
        self.node.note_usage(
            {
                interval.id: "closed" if interval.ended_at else "opened"
                for interval in report.usage
                if f"usage {interval.id}" not in dropped
            }
        )

    def _report(self, minute: ReportMinute, totals: Mapping[str, CopyTotals]) -> Report:
        node = self.node
        if node.memory.incarnation != self._incarnation:
            self._incarnation, self._sequence, self._inventory_sent = node.memory.incarnation, 0, False
        sequence, self._sequence = self._sequence, self._sequence + 1
        index = {uuid: number for number, uuid in enumerate(node.uuids)}
        alive = node.alive()
        gpus = tuple(self._gpu(minute, number) for number in range(len(node.uuids)))
        usage = [interval for copy in node.copies.values() for interval in reporting.usage(copy, index)]
        return Report(
            node=node.name,
            incarnation=node.memory.incarnation,
            sequence=sequence,
            at=node.date(),
            minute=minute.began,
            boot_id="simulated",
            health=find_node_health(gpus),
            epoch=node.memory.epoch,
            generation=node.memory.generation,
            assignment_version=node.version,
            stale_assignments=node.stale,
            inventory=None if self._inventory_sent else inventory(node),
            gpus=gpus,
            instances=_instances(minute, alive, index, totals),
            usage=tuple(usage)[: reporting.MOST_USAGE],
            copies=tuple(self._copy(copy, index) for copy in alive),
            held_back=tuple(reporting.held_back(held, -1) for held in node.held[: reporting.MOST_OF_A_KIND]),
            repartition=node.repartition,
            reclaim_at=node.reclaim_at,
            drained=node.drained,
        )

    def _copy(self, copy: NodeCopy, index: Mapping[str, int]) -> ReportedCopy:
        """Describes a copy without an address, so that no real gateway sends it requests."""
        report = reporting.report_copy(copy, index, "", copy.served and copy.stage is Stage.READY, None)
        return msgspec.structs.replace(report, address="")

    def _gpu(self, minute: ReportMinute, number: int) -> GpuMinute:
        node = self.node
        gpu_minute = minute.gpu(node.uuids[number], number, node.energy_mj[node.uuids[number]])
        if number in node.lost:
            return msgspec.structs.replace(gpu_minute, health="failed", reason="lost", fenced=True)
        clock = node.clock_mhz(number)
        return msgspec.structs.replace(
            gpu_minute, health="ok", requested={"clockMhz": clock}, applied={"clockMhz": clock}
        )


def _instances(
    minute: ReportMinute, copies: Sequence[NodeCopy], index: Mapping[str, int], totals: Mapping[str, CopyTotals]
) -> tuple[InstanceMinute, ...]:
    minutes = minute.instances(copies, index, totals)
    for copy in copies:
        if copy.instance not in minutes:
            continue  # it waits in host memory
        wanted = copy.wanted
        fields = {"smPercent": wanted.sm_percent, "memoryGib": wanted.memory_gib}
        batch = {"batch": wanted.batch.planned} if wanted.batch else {}
        minutes[copy.instance] = msgspec.structs.replace(
            minutes[copy.instance],
            requested=fields | batch,
            applied=batch or None,
            measured={"memoryGib": wanted.memory_gib} | batch,
        )
    return tuple(minutes.values())

"""The part of a report that rarely changes: copies, what is held back, excursions, ailing GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

import msgspec

from agents.contract.reports import Copy, Excursion, GpuMinute, HeldBack, Report

REWRITE_SECONDS = 60.0  # an unchanged detail is written again: the database may have been restored meanwhile
MOST_NODES = 50_000


class AilingGpu(msgspec.Struct, rename="camel", omit_defaults=True):
    """A GPU that is unhealthy or fenced."""

    index: int
    health: str = "ok"
    fenced: bool = False
    reason: str = ""


class InstanceOwner(msgspec.Struct, omit_defaults=True):
    """The tenant and the service or job of an instance."""

    tenant: str = ""
    service: str = ""
    job: str = ""


class NodeDetail(msgspec.Struct, rename="camel", omit_defaults=True):
    """The detail as it is stored, one row per node."""

    gpus: tuple[AilingGpu, ...] = ()
    copies: tuple[Copy, ...] = ()
    held_back: tuple[HeldBack, ...] = ()
    excursions: tuple[Excursion, ...] = ()
    repartition: tuple[int, ...] = ()
    owners: Mapping[str, InstanceOwner] = {}
    paths: Mapping[str, tuple[str, ...]] = {}  # that callers may use, by the key that copies name


def detail_of(report: Report) -> NodeDetail:
    """Returns the part of the report that is kept until the node reports something else."""
    named = {copy.instance for copy in report.copies} | {held.instance for held in report.held_back}
    named |= {excursion.instance for excursion in report.excursions}
    owners = {
        line.id: InstanceOwner(line.tenant, line.service, line.job)
        for line in report.instances
        if named and line.id in named
    }
    return NodeDetail(
        tuple(describe_ailing(gpu) for gpu in report.gpus if _unwell(gpu)),
        report.copies,
        report.held_back,
        report.excursions,
        report.repartition,
        owners,
        report.paths,
    )


def encode(report: Report) -> bytes:
    return msgspec.json.encode(detail_of(report))


def fingerprint(report: Report) -> bytes:
    """Returns sixteen bytes that stay the same while the detail does."""
    unwell = [describe_ailing(gpu) for gpu in report.gpus if _unwell(gpu)]
    detail = (unwell, report.copies, report.held_back, report.excursions, report.repartition, report.paths)
    return blake2b(msgspec.json.encode(detail), digest_size=16).digest()


def describe_ailing(gpu: GpuMinute) -> AilingGpu:
    return AilingGpu(gpu.index, gpu.health, gpu.fenced, gpu.reason)


def _unwell(gpu: GpuMinute) -> bool:
    return gpu.fenced or gpu.health != "ok"


class StoredDetails:
    """Remembers the last detail of each node that this process has stored.

    An unchanged detail may stay unwritten only if this process stored the report right before: then no other replica
    has stored one since.
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, bytes, float]] = {}  # newest ordinal, its fingerprint, when to write again

    def is_known(self, node: str, ordinal: int, fingerprint: bytes, now: float) -> bool:
        """Returns whether the report right before this one had the same detail and is stored."""
        before = self._last.get(node)
        return before is not None and before[0] == ordinal - 1 and before[1] == fingerprint and now < before[2]

    def remember(self, node: str, ordinal: int, fingerprint: bytes, now: float) -> None:
        """Remembers that this report, or a newer one, is in the database."""
        before = self._last.get(node)
        if before is not None and before[0] >= ordinal:
            return
        if before is None and len(self._last) >= MOST_NODES:
            self._last.clear()
        until = (
            before[2]
            if before is not None and self.is_known(node, ordinal, fingerprint, now)
            else now + REWRITE_SECONDS
        )
        self._last[node] = (ordinal, fingerprint, until)

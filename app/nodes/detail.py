"""What a report says beside its numbers: copies, what is held back, excursions, ailing devices. Mostly unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

import msgspec

from agents.contract import Copy, Excursion, GpuMinute, HeldBack, Report

AGAIN_SECONDS = 60.0  # written again after so long: the database may have been restored under us
MOST_NODES = 50_000


class AilingGpu(msgspec.Struct, rename="camel", omit_defaults=True):
    """A device that is not well, or fenced."""

    index: int
    health: str = "ok"
    fenced: bool = False
    reason: str = ""


class InstanceOwner(msgspec.Struct, omit_defaults=True):
    """Whose an instance is."""

    tenant: str = ""
    service: str = ""
    job: str = ""


class NodeDetail(msgspec.Struct, rename="camel", omit_defaults=True):
    """As it is stored, one row a node."""

    gpus: tuple[AilingGpu, ...] = ()
    copies: tuple[Copy, ...] = ()
    held_back: tuple[HeldBack, ...] = ()
    excursions: tuple[Excursion, ...] = ()
    repartition: tuple[int, ...] = ()
    owners: Mapping[str, InstanceOwner] = {}


def detail_of(report: Report) -> NodeDetail:
    """What of the report is kept until the node says something else."""
    named = {copy.instance for copy in report.copies} | {held.instance for held in report.held_back}
    named |= {excursion.instance for excursion in report.excursions}
    owners = {
        one.id: InstanceOwner(one.tenant, one.service, one.job) for one in report.instances if named and one.id in named
    }
    return NodeDetail(
        tuple(describe_ailing(gpu) for gpu in report.gpus if _unwell(gpu)),
        report.copies,
        report.held_back,
        report.excursions,
        report.repartition,
        owners,
    )


def encode(report: Report) -> bytes:
    return msgspec.json.encode(detail_of(report))


def fingerprint(report: Report) -> bytes:
    """Sixteen bytes that stay the same while the node says the same."""
    unwell = [describe_ailing(gpu) for gpu in report.gpus if _unwell(gpu)]
    said = (unwell, report.copies, report.held_back, report.excursions, report.repartition)
    return blake2b(msgspec.json.encode(said), digest_size=16).digest()


def describe_ailing(gpu: GpuMinute) -> AilingGpu:
    return AilingGpu(gpu.index, gpu.health, gpu.fenced, gpu.reason)


def _unwell(gpu: GpuMinute) -> bool:
    return gpu.fenced or gpu.health != "ok"


class StoredDetails:
    """What each node was last stored to have said, by this process.

    That the report before is the one stored here proves that no other replica has stored anything since: only
    then may the same words be left unwritten.
    """

    def __init__(self) -> None:
        self._said: dict[str, tuple[int, bytes, float]] = {}  # newest ordinal, its words, until when that is enough

    def known(self, node: str, ordinal: int, words: bytes, now: float) -> bool:
        """Whether this report says what the one right before it said, and that one is stored."""
        before = self._said.get(node)
        return before is not None and before[0] == ordinal - 1 and before[1] == words and now < before[2]

    def stored(self, node: str, ordinal: int, words: bytes, now: float) -> None:
        """The report is in the database, or a newer one is."""
        before = self._said.get(node)
        if before is not None and before[0] >= ordinal:
            return
        if before is None and len(self._said) >= MOST_NODES:
            self._said.clear()
        until = before[2] if before is not None and self.known(node, ordinal, words, now) else now + AGAIN_SECONDS
        self._said[node] = (ordinal, words, until)

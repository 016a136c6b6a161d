"""Builds a report: the state of the node, and its minute so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from agents.contract.admitted import AdmittedEntry, MetadataState
from agents.contract.fields import LATENCY_EDGES_MS
from agents.contract.paths import hash_rules
from agents.contract.reports import (
    OF_GPU,
    OF_SPELL,
    Excursion,
    GpuFacts,
    GpuMinute,
    HeldBack,
    InstanceMinute,
    Inventory,
    UsageInterval,
)
from agents.contract.reports import Copy as SaidCopy
from agents.keeper.copies import NodeCopy
from agents.keeper.decide import HeldStart
from agents.node.knob_writer import KnobState, KnobWriter
from agents.node.report_minute import CopyTotals, ReportMinute
from agents.policy.health import HealthVerdict
from agents.seams.device import GpuDevice

MOST_AMOUNT = 1e12  # the contract's largest amount or count
MOST_OF_A_KIND = 4096  # instances, copies in one report
MOST_USAGE = 1000  # intervals in one report; the server takes more of them later


class ReportBody(msgspec.Struct, frozen=True):
    """A report without its heading."""

    gpus: tuple[GpuMinute, ...] = ()
    instances: tuple[InstanceMinute, ...] = ()
    usage: tuple[UsageInterval, ...] = ()
    copies: tuple[SaidCopy, ...] = ()
    held_back: tuple[HeldBack, ...] = ()
    excursions: tuple[Excursion, ...] = ()
    repartition: tuple[int, ...] = ()
    reclaim_at: datetime | None = None
    drained: bool = False
    paths: dict[str, tuple[str, ...]] = {}


def gpu_minute(
    minute: ReportMinute, index: int, uuid: str, verdict: HealthVerdict, energy_mj: int, knobs: KnobWriter
) -> GpuMinute:
    requested, applied = _both({"clockMhz": knobs.clocks.get(uuid), "capW": knobs.caps.get(uuid)})
    return msgspec.structs.replace(
        minute.gpu(uuid, index, energy_mj),
        health=verdict.health,
        reason=verdict.reason,
        fenced=verdict.fenced,
        requested=requested,
        applied=applied,
    )


def instance_minutes(
    minute: ReportMinute,
    copies: Sequence[NodeCopy],
    index: Mapping[str, int],
    totals: Mapping[str, CopyTotals],
    knobs: KnobWriter,
) -> tuple[InstanceMinute, ...]:
    """Returns one entry for each instance, with requested and applied settings and the copy's own measurements."""
    found = minute.instances(copies, index, totals)
    newest = {copy.instance: copy for copy in copies if minute.has_run(copy)}
    for name, copy in newest.items():
        states = {"batch": knobs.batches.get(copy.id)}
        requested, applied = _both(states)
        requested = {"smPercent": copy.wanted.sm_percent, "memoryGib": copy.wanted.memory_gib, **(requested or {})}
        served = totals[copy.id].served if copy.id in totals else None
        measured: dict[str, float] = {}
        if served is not None:
            known = {"smCount": served.sm_count, "memoryGib": served.memory_gib, "batch": served.batch}
            measured = {knob: float(value) for knob, value in known.items() if value is not None}
        found[name] = limit_figures(
            msgspec.structs.replace(found[name], requested=requested, applied=applied, measured=measured or None)
        )
    return tuple(found.values())


def add_exits(line: InstanceMinute, exits: int, exit_code: int) -> InstanceMinute:
    """Returns the entry of a job with the exits of its processes, if there were any."""
    return msgspec.structs.replace(line, exits=exits, exit_code=exit_code) if exits else line


def limit_figures(entry: InstanceMinute) -> InstanceMinute:
    """Limits every figure to what a report may hold, so that one lying copy does not invalidate the node's report."""
    counts = tuple(int(_inside(count)) for count in entry.latency_counts[: len(LATENCY_EDGES_MS) + 1])
    return msgspec.structs.replace(
        entry,
        requests=int(_inside(entry.requests)),
        errors=int(_inside(entry.errors)),
        latency_counts=counts,
        batch_mean=_inside(entry.batch_mean),
        queue_mean=_inside(entry.queue_mean),
        busy_seconds=_inside(entry.busy_seconds),
        steps=_inside(entry.steps),
        saved_steps=_inside(entry.saved_steps),
        batches=_inside(entry.batches),
        measured={knob: _inside(value) for knob, value in entry.measured.items()} if entry.measured else None,
    )


def _inside(amount: float) -> float:
    return min(max(amount, 0.0), MOST_AMOUNT) if amount == amount else 0.0  # NaN is not itself


def report_copy(
    copy: NodeCopy, index: Mapping[str, int], host: str, routed: bool, paths: tuple[str, ...] | None
) -> SaidCopy:
    return SaidCopy(
        id=copy.id,
        instance=copy.instance,
        gpu=index[copy.gpu],
        stage=copy.stage,
        sm_percent=copy.wanted.sm_percent,
        memory_gib=copy.wanted.memory_gib,
        address=copy.listens_at.on(host).spell() if copy.served else "",
        routed=routed,
        reason=copy.reason,
        message=_sentence(copy.message),
        gpus=tuple(index[gpu] for gpu in copy.gpus if gpu in index),
        paths=hash_rules(paths) if copy.served and paths is not None else "",
    )


def held_back(held: HeldStart, exit_code: int) -> HeldBack:
    lacks = held.missing
    return HeldBack(
        held.instance,
        lacks.reason,
        _sentence(lacks.message),
        min(100.0, lacks.sm_percent),
        lacks.memory_gib,
        exit_code,
    )


def usage(copy: NodeCopy, indexes: Mapping[str, int]) -> tuple[UsageInterval, ...]:
    """Returns the copy's usage that the control plane has not acknowledged: one interval for each of its GPUs.

    The last is of the first GPU and has the copy's name: once it is acknowledged, so are those before it. A device that
    is gone, and whose index means another one now, has the index that it was assigned by.
    """
    assigned = dict(
        zip(copy.devices, copy.wanted.all_gpus, strict=False)
    )  # of what was adopted only the first is known
    indexes = {gpu: indexes.get(gpu, assigned.get(gpu, -1)) for gpu in copy.devices}
    if -1 in indexes.values():
        return ()
    earlier = [
        msgspec.structs.replace(
            _usage(copy, _name(copy.id, spell.number), copy.gpu, indexes),
            started_at=spell.started_at,
            ended_at=spell.ended_at,
            evidence=spell.evidence or "observed",
        )
        for spell in copy.earlier
    ]
    if copy.started_at is None or copy.acknowledged == ("closed" if copy.ended_at else "opened"):
        return tuple(earlier)
    name = _name(copy.id, copy.spell)
    others = (_usage(copy, f"{name}{OF_GPU}{indexes[gpu]}", gpu, indexes) for gpu in copy.devices[1:])
    return (*earlier, *others, _usage(copy, name, copy.gpu, indexes))


def name_first_gpu_usage(interval: str) -> str:
    """Returns the name of the usage on the first GPU, of usage on any GPU of the same copy."""
    return interval.partition(OF_GPU)[0]


def copy_and_spell(interval: str) -> tuple[str, int]:
    """Returns the copy that usage on its first GPU belongs to, and how often it had returned from host memory."""
    copy, _, spell = interval.rpartition(OF_SPELL)
    return (copy, int(spell)) if copy and spell.isdecimal() else (interval, 0)


def _name(copy: str, spell: int) -> str:
    return f"{copy}{OF_SPELL}{spell}" if spell else copy


def _usage(copy: NodeCopy, name: str, gpu: str, indexes: Mapping[str, int]) -> UsageInterval:
    assert copy.started_at is not None
    return UsageInterval(
        id=name,
        instance=copy.instance,
        gpu=indexes[gpu],
        started_at=copy.started_at,
        ended_at=copy.ended_at,
        tenant=copy.wanted.tenant,
        service=copy.wanted.service,
        job=copy.wanted.job,
        gpu_uuid=gpu,
        sm_percent=copy.wanted.sm_percent,
        memory_gib=copy.wanted.memory_gib,
        dedicated=copy.wanted.dedicated,
        evidence=copy.evidence or "observed",
        model=copy.wanted.model,
    )


def inventory(
    gpus: Mapping[int, GpuDevice],
    unclear: str,
    templates: Sequence[str],
    version: str,
    admitted: Sequence[AdmittedEntry] = (),
    metadata: MetadataState | None = None,
) -> Inventory:
    facts = tuple(
        GpuFacts(
            index=index,
            uuid=gpu.uuid,
            memory_gib=gpu.memory_gib,
            address=gpu.place,
            capabilities=tuple(sorted(gpu.abilities)),
            sm_count=gpu.sm_count,
            power_min_w=gpu.power_min_w,
            serial=gpu.serial,
        )
        for index, gpu in sorted(gpus.items())
    )
    return Inventory(
        facts, tuple(sorted(templates)), version, admitted=tuple(admitted), metadata=metadata,
        unclear=_sentence(unclear),
    )  # fmt: skip


def _both(knobs: Mapping[str, KnobState | None]) -> tuple[dict[str, float] | None, dict[str, float] | None]:
    requested = {name: knob.requested for name, knob in knobs.items() if knob and knob.requested is not None}
    applied = {name: knob.applied for name, knob in knobs.items() if knob and knob.applied is not None}
    return requested or None, applied or None


def _sentence(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)[:500]

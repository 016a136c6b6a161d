"""The messages by which an agent reports to the control plane, and the answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from agents.contract.admitted import MOST_ENTRIES, AdmittedEntry, MetadataState
from agents.contract.assignments import owner_name
from agents.contract.fields import (
    CONTRACT,
    LATENCY_EDGES_MS,
    Address,
    Amount,
    Celsius,
    Count,
    Counter,
    GpuIndex,
    Identifier,
    Moment,
    Name,
    OptionalName,
    Percent,
    Reason,
    ReportedId,
    ReportedName,
    Sentence,
)
from agents.contract.paths import PathsKey, PathTable


class GpuFacts(Struct, rename="camel", omit_defaults=True, gc=False):
    """One device as it was enumerated."""

    index: GpuIndex
    uuid: Identifier
    gpu_type: OptionalName = ""
    memory_gib: Amount = 0.0
    address: Annotated[str, Meta(max_length=40, pattern=r"^[!-~]*$(?!\n)")] = ""  # PCI
    capabilities: Annotated[tuple[Reason, ...], Meta(max_length=64)] = ()
    sm_count: Count = 0
    power_min_w: Amount = 0.0  # the smallest power limit that it takes
    serial: Annotated[str, Meta(max_length=40, pattern=r"^[!-~]*$(?!\n)")] = ""  # of its board


class Inventory(Struct, rename="camel", omit_defaults=True, gc=False):
    """The machine and what it can start. Sent at start and on change; a report without it means no change."""

    gpus: Annotated[tuple[GpuFacts, ...], Meta(max_length=1024)] = ()
    templates: Annotated[tuple[Name, ...], Meta(max_length=256)] = ()
    agent_version: Annotated[str, Meta(max_length=40, pattern=r"^[!-~]*$(?!\n)")] = ""
    driver_version: Annotated[str, Meta(max_length=40, pattern=r"^[!-~]*$(?!\n)")] = ""
    admitted: Annotated[tuple[AdmittedEntry, ...], Meta(max_length=MOST_ENTRIES)] = ()  # of users' own runtimes
    metadata: MetadataState | None = None  # None: no own runtime is admitted
    unclear: Sentence = ""  # why a device that is there has no index


class GpuMinute(Struct, rename="camel", omit_defaults=True, gc=False):
    """One GPU in the minute so far."""

    index: GpuIndex
    health: Reason = "ok"  # Health
    utilization_percent: Percent = 0.0
    memory_used_gib: Amount = 0.0
    power_mean_w: Amount = 0.0
    power_peak_w: Amount = 0.0
    energy_counter_mj: Counter = 0  # as read; grows until the driver is reloaded
    temperature_c: Celsius = 0.0
    sm_clock_mhz: Amount = 0.0
    throttle_reasons: Annotated[tuple[Reason, ...], Meta(max_length=16)] = ()
    reason: Reason = ""  # why it is not ok, like xid_79, lost, mps_fault, hot
    fenced: bool = False  # nothing starts on it
    requested: dict[Reason, Amount] | None = None  # clockMhz, capW
    applied: dict[Reason, Amount] | None = None


class InstanceMinute(Struct, rename="camel", omit_defaults=True, gc=False):
    """One instance of a service or a job in the minute so far."""

    id: ReportedId
    gpu: GpuIndex
    tenant: ReportedName = ""
    service: ReportedName = ""  # exactly one of service and job
    job: ReportedName = ""
    sm_percent: Percent = 0.0
    memory_gib: Amount = 0.0
    requests: Count = 0
    errors: Count = 0
    # To whole answers; of a service that promises times of tokens, to the first token.
    latency_counts: Annotated[tuple[Count, ...], Meta(max_length=len(LATENCY_EDGES_MS) + 1)] = ()
    batch_mean: Amount = 0.0
    queue_mean: Amount = 0.0
    busy_seconds: Amount = 0.0
    # Requested from the device, applied there, measured by the process itself; filled in where known.
    requested: dict[Reason, Amount] | None = None
    applied: dict[Reason, Amount] | None = None
    measured: dict[Reason, Amount] | None = None
    source: Reason = ""  # of requests and latencies: gateway, server-side; empty for a job
    steps: Amount = 0.0  # of a job since it began
    exits: Count = 0  # of a job's processes here that ended by themselves
    exit_code: Annotated[int, Meta(ge=-1, le=255)] = -1  # of the last of them; -1: unknown
    saved_steps: Amount = 0.0  # of them, saved: a new process continues from there; 0: nothing, or unknown
    batches: Amount = 0.0  # served in the minute; 0: unknown, as batch_mean covers all since the copy began
    tokens_in: Count = 0  # of a language model
    tokens_out: Count = 0
    paced: Count = 0  # answers whose pace of tokens was compared with the promise
    pace_late: Count = 0  # of those, slower

    @property
    def owner(self) -> str:
        """The service or job, as plans name it: tenant/name."""
        return owner_name(self.tenant, self.service or self.job)


class Copy(Struct, rename="camel", omit_defaults=True, gc=False):
    """One process of an instance, in its present state. During a hand-over an instance has two."""

    id: Identifier
    instance: Identifier
    gpu: GpuIndex
    stage: Reason  # of agents.keeper.copies.Stage
    sm_percent: Percent = 0.0
    memory_gib: Amount = 0.0
    address: Address = ""
    routed: bool = False  # the gateway has acknowledged it
    reason: Reason = ""
    message: Sentence = ""
    gpus: Annotated[tuple[GpuIndex, ...], Meta(max_length=64)] = ()  # all of them, where it has several
    paths: PathsKey = ""  # that callers may use, in the report's table

    @property
    def all_gpus(self) -> tuple[int, ...]:
        return self.gpus or (self.gpu,)


class HeldBack(Struct, rename="camel", omit_defaults=True, gc=False):
    """An assigned instance that the node does not start, why, and the smallest room that it lacks."""

    instance: Identifier
    reason: Reason  # no_room_to_hand_over, no_memory, no_template, not_admitted, gpu_fenced, not_under_mps, ...
    message: Sentence = ""
    needs_sm_percent: Percent = 0.0
    needs_memory_gib: Amount = 0.0
    exit_code: Annotated[int, Meta(ge=-1, le=255)] = -1  # of its last process; -1: none has ended, or it is unknown


class Excursion(Struct, rename="camel", omit_defaults=True, gc=False):
    """A knob that the node has moved away from its planned value, inside its frame."""

    knob: Reason  # clockMhz, batch
    gpu: GpuIndex
    planned: Amount
    value: Amount
    reason: Reason  # over_cap, over_slo
    since: Moment
    instance: Annotated[str, Meta(max_length=100, pattern=r"^[!-~]*$(?!\n)")] = ""


OF_GPU = "@"  # in the name of usage: after that of a copy on several GPUs, before the index of one of the others
OF_SPELL = "+"  # in the name of usage: after that of a copy, before how often it had returned from host memory


class UsageInterval(Struct, rename="camel", omit_defaults=True, gc=False):
    """A tenant's share of a GPU from one time to another: the basis of all costs.

    Sent when it opens and when it closes, and repeated until a report with it is answered 200. The agent chooses `id`
    once; an interval is opened once and closed once, however often it is sent.
    """

    id: Identifier
    instance: Identifier
    gpu: GpuIndex
    started_at: Moment
    ended_at: Moment | None = None
    tenant: OptionalName = ""
    service: OptionalName = ""
    job: OptionalName = ""
    gpu_uuid: Annotated[str, Meta(max_length=100, pattern=r"^[!-~]*$(?!\n)")] = ""
    sm_percent: Percent = 0.0
    memory_gib: Amount = 0.0
    dedicated: bool = False
    evidence: Reason = ""  # how the agent knows: observed, journal, restart
    model: OptionalName = ""

    @property
    def owner(self) -> str:
        """The service or job, as plans name it: tenant/name."""
        return owner_name(self.tenant, self.service or self.job)


SEQUENCE_BITS = 31


class Report(Struct, rename="camel", omit_defaults=True, gc=False):
    """One report of one node: its health, its inventory, and its minute so far."""

    node: Name
    # Both order a node's reports: the agent counts its starts on disk, and its reports since the start.
    incarnation: Annotated[int, Meta(ge=0, lt=2**32)]
    sequence: Annotated[int, Meta(ge=0, lt=2**31)]
    at: Moment  # the agent's clock, which may be wrong
    minute: Moment  # the UTC minute that the aggregates belong to
    contract: Annotated[int, Meta(ge=1, le=CONTRACT + 1)] = 1
    boot_id: Annotated[str, Meta(max_length=100, pattern=r"^[!-~]*$(?!\n)")] = ""  # the kernel's
    health: Reason = "ok"  # Health
    message: Sentence = ""
    epoch: Counter = 0  # the highest that the agent knows
    generation: Counter = 0  # of the assignment that it holds
    assignment_version: Counter = 0
    stale_assignments: Count = 0  # refused since the agent started, because a newer one had come before
    inventory: Inventory | None = None
    gpus: Annotated[tuple[GpuMinute, ...], Meta(max_length=1024)] = ()
    instances: Annotated[tuple[InstanceMinute, ...], Meta(max_length=4096)] = ()
    usage: Annotated[tuple[UsageInterval, ...], Meta(max_length=4096)] = ()
    copies: Annotated[tuple[Copy, ...], Meta(max_length=4096)] = ()
    held_back: Annotated[tuple[HeldBack, ...], Meta(max_length=4096)] = ()
    excursions: Annotated[tuple[Excursion, ...], Meta(max_length=4096)] = ()
    repartition: Annotated[tuple[GpuIndex, ...], Meta(max_length=1024)] = ()  # the node cannot keep both limits here
    reclaim_at: Moment | None = None  # when the cloud takes the node back, as the node has learned
    drained: bool = False  # who runs the node's cluster wants it empty
    paths: PathTable = {}  # of its copies

    @property
    def ordinal(self) -> int:
        """One number that orders the reports of a node across restarts of its agent."""
        return self.incarnation << SEQUENCE_BITS | self.sequence


COPY = "copy "  # begins the `what` of a dropped part: a copy without a route


class Dropped(Struct, rename="camel", omit_defaults=True, gc=False):
    """A part of a report that was dropped, and why."""

    what: str  # state, telemetry, usage <id>, copy <id> (stored, but not routed)
    # `future` and `later` usage is sent again. `ahead`: the incarnation is later than the server's clock; the agent
    # continues above `now`. `not_assigned` usage is billed to no tenant.
    reason: str  # future, later, too_old, superseded, ahead, not_assigned, overlapping, too_many_starts, bad_address
    message: str = ""


class Answer(Struct, rename="camel", gc=False):
    """The answer to a report: everything is stored except what `dropped` lists."""

    accepted: bool
    assignment_version: int
    now: datetime  # the database's clock: an agent can see that its own is wrong
    dropped: Sequence[Dropped] = ()
    incarnation: int = 0  # the highest known of this node; an agent with a lower one continues above it
    endpoints: Counter = 0  # the version of the endpoints that has the copies of this report
    routed: Counter = 0  # every gateway that follows the endpoints has put this version, or a later one, in force
    # Of the gateways that report, the one with the oldest endpoints that have changed since; empty if there is none.
    behind: Annotated[str, Meta(max_length=253, pattern=r"^[!-~]*$(?!\n)")] = ""
    campaign: Annotated[str, Meta(max_length=100, pattern=r"^[!-~]*$(?!\n)")] = ""  # the profiling that is due here
    gateways_known: bool = True  # False: `behind` is empty, but a gateway that reports may be behind


_NAME = re.compile(r"([a-z0-9]([-a-z0-9]*[a-z0-9])?)?")
_IDENTIFIER = re.compile(r"[!-~]+")
_MOST_KNOWN = 200_000
_known: set[tuple[str, str, str, str]] = set()


def find_misnamed(instances: Sequence[InstanceMinute]) -> str:
    """Returns what is wrong with an instance's names; empty if nothing is.

    A pattern in the type would be matched a hundred times per report, which is half of the time to read one.
    """
    for instance in instances:
        names = (instance.id, instance.tenant, instance.service, instance.job)
        if names in _known:
            continue
        if not _IDENTIFIER.fullmatch(instance.id):
            return f"instance id {instance.id!r} must be printable ASCII without spaces"
        for name in names[1:]:
            if not _NAME.fullmatch(name):
                return f"instance {instance.id}: {name!r} is not a DNS label"
        if bool(instance.service) == bool(instance.job):
            return f"instance {instance.id} must name a service or a job, and not both"
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known.add(names)
    return ""

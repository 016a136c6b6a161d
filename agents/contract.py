"""The messages between agents, gateways and the control plane, and the limits of their fields.

Compatibility: `contract` is the version of these messages. Both sides ignore unknown fields and fill in defaults of
missing ones, so a field may be added at any time, always with a default; either side may be one version ahead. A field
never changes its meaning: a new meaning gets a new field. Words in a field (health, stage, reason, handover) are open:
an unknown word is kept and shown, and treated like the more careful of the known ones. A message without a version is
of version 1, forever; only fields have been added since, so the version is still 1.

Values of a minute are aggregates since the minute began. So a later report of the same minute contains everything of
an earlier one, and reports may be lost, doubled or reordered without harm.

The structs are hidden from the garbage collector (`gc=False`, tuples, no empty dicts): they hold no cycles, and at a
thousand reports a second collecting them would take longer than reading them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

CONTRACT = 1
REPORT_SECONDS = 10
LONGEST_POLL_SECONDS = 60

# Upper edges of the latency histogram in ms: 12 buckets a decade from 0.5 ms, which separates 80 ms from 100 ms. The
# last bucket counts everything above. Trailing zeros may be left out.
LATENCY_EDGES_MS: Sequence[float] = tuple(round(0.5 * 10 ** (step / 12), 4) for step in range(60))

# `(?!\n)`: Python lets `$` match before a last line feed.
Name = Annotated[str, Meta(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$(?!\n)")]
OptionalName = Annotated[str, Meta(max_length=63, pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$(?!\n)")]
ServiceName = Annotated[
    str,  # tenant/name
    Meta(max_length=127, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9]*[a-z0-9])?$(?!\n)"),
]
# For devices, instances and boots, whose names come from elsewhere (NVML, the kernel): printable ASCII, no spaces.
Identifier = Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[!-~]+$(?!\n)")]
# The same where a report has hundreds: checked by `misnamed`, which caches names already checked.
SaidName = Annotated[str, Meta(max_length=63, extra_json_schema={"pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$"})]
SaidId = Annotated[str, Meta(min_length=1, max_length=100, extra_json_schema={"pattern": "^[!-~]+$"})]
Reason = Annotated[str, Meta(max_length=60, pattern=r"^[A-Za-z0-9_.:-]*$(?!\n)")]
Sentence = Annotated[str, Meta(max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$(?!\n)")]
Amount = Annotated[float, Meta(ge=0, le=1e12)]
Percent = Annotated[float, Meta(ge=0, le=100)]
Celsius = Annotated[float, Meta(ge=-100, le=1000)]
Count = Annotated[int, Meta(ge=0, le=1_000_000_000_000)]
Counter = Annotated[int, Meta(ge=0, le=2**63 - 1)]  # a joule counter passes 1e12 mJ within weeks
GpuIndex = Annotated[int, Meta(ge=0, le=1023)]
Moment = Annotated[datetime, Meta(tz=True)]
Address = Annotated[str, Meta(max_length=100, pattern=r"^[!-~]*$(?!\n)")]  # host:port
# The words known here; on the wire they are Reasons, because the other side may know one more.
Health = Literal["ok", "degraded", "failed", "unknown"]
# How far a copy of an instance has come in starting or stopping.
Stage = Literal["starting", "verifying", "warming", "routing", "ready", "draining", "ending", "gone"]
Handover = Literal["overlap", "strict"]


def owner_name(tenant: str, name: str) -> str:
    """Names a service or job as plans do: tenant/name, where no tenant means the tenant `default`."""
    return f"{tenant or 'default'}/{name}"


class GpuFacts(Struct, rename="camel", omit_defaults=True, gc=False):
    """One device as it was enumerated."""

    index: GpuIndex
    uuid: Identifier
    gpu_type: OptionalName = ""
    memory_gib: Amount = 0.0
    address: Annotated[str, Meta(max_length=40, pattern=r"^[!-~]*$(?!\n)")] = ""  # PCI
    capabilities: Annotated[tuple[Reason, ...], Meta(max_length=64)] = ()
    sm_count: Count = 0


class Inventory(Struct, rename="camel", omit_defaults=True, gc=False):
    """The machine's GPUs and templates. Sent at start and on change; a report without it means no change."""

    gpus: Annotated[tuple[GpuFacts, ...], Meta(max_length=1024)] = ()
    templates: Annotated[tuple[Name, ...], Meta(max_length=256)] = ()
    agent_version: Annotated[str, Meta(max_length=40, pattern=r"^[!-~]*$(?!\n)")] = ""
    driver_version: Annotated[str, Meta(max_length=40, pattern=r"^[!-~]*$(?!\n)")] = ""


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

    id: SaidId
    gpu: GpuIndex
    tenant: SaidName = ""
    service: SaidName = ""  # exactly one of service and job
    job: SaidName = ""
    sm_percent: Percent = 0.0
    memory_gib: Amount = 0.0
    requests: Count = 0
    errors: Count = 0
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
    batches: Amount = 0.0  # served in the minute; 0: unknown, as batch_mean covers all since the copy began

    @property
    def owner(self) -> str:
        """The service or job, as plans name it: tenant/name."""
        return owner_name(self.tenant, self.service or self.job)


class Copy(Struct, rename="camel", omit_defaults=True, gc=False):
    """One process of an instance, in its present state. During a hand-over an instance has two."""

    id: Identifier
    instance: Identifier
    gpu: GpuIndex
    stage: Reason  # Stage
    sm_percent: Percent = 0.0
    memory_gib: Amount = 0.0
    address: Address = ""
    routed: bool = False  # the gateway has acknowledged it
    reason: Reason = ""
    message: Sentence = ""


class HeldBack(Struct, rename="camel", omit_defaults=True, gc=False):
    """An assigned instance that the node does not start, why, and the smallest room that it lacks."""

    instance: Identifier
    reason: Reason  # no_room_to_hand_over, no_memory, no_template, refused_arguments, gpu_fenced, not_under_mps, ...
    message: Sentence = ""
    needs_sm_percent: Percent = 0.0
    needs_memory_gib: Amount = 0.0


class Excursion(Struct, rename="camel", omit_defaults=True, gc=False):
    """A knob that the node has moved away from its planned value, inside its frame."""

    knob: Reason  # clockMhz, batch
    gpu: GpuIndex
    planned: Amount
    value: Amount
    reason: Reason  # over_cap, over_slo
    since: Moment
    instance: Annotated[str, Meta(max_length=100, pattern=r"^[!-~]*$(?!\n)")] = ""


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
    epoch: Counter = 0  # highest that the agent has seen
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


class Dropped(Struct, rename="camel", omit_defaults=True, gc=False):
    """A part of a report that was dropped, and why."""

    what: str  # telemetry, usage <id>
    reason: str  # future, too_old, superseded, not_assigned (stored, but billed to no tenant)
    message: str = ""


class Answer(Struct, rename="camel", gc=False):
    """The answer to a report: everything is stored except what `dropped` lists."""

    accepted: bool
    assignment_version: int
    now: datetime  # the database's clock: an agent can see that its own is wrong
    dropped: Sequence[Dropped] = ()
    incarnation: int = 0  # the highest known of this node; an agent with a lower one continues above it


class Frame(Struct, rename="camel", omit_defaults=True, gc=False):
    """A knob's planned value and range: the plan sets the range, and the node moves the knob inside it."""

    planned: Amount
    min: Amount
    max: Amount


class AssignedInstance(Struct, rename="camel", omit_defaults=True, gc=False):
    """One instance as it is to run."""

    id: Identifier
    gpu: GpuIndex
    tenant: OptionalName = ""
    service: OptionalName = ""
    job: OptionalName = ""
    model: OptionalName = ""
    variant: OptionalName = ""
    template: OptionalName = ""
    args: dict[str, str | int | float | bool] | None = None
    sm_percent: Percent = 0.0
    memory_gib: Amount = 0.0
    batch: Frame | None = None
    batch_timeout_ms: Amount = 0.0
    rate_per_second: Amount = 0.0
    slo_ms: Amount = 0.0  # 0: none, as for a job
    percentile: Percent = 0.0
    dedicated: bool = False
    priority: Amount = 100.0
    preemptible: bool = True  # a job that may be stopped when services need its memory

    @property
    def owner(self) -> str:
        """The service or job, as plans name it: tenant/name."""
        return owner_name(self.tenant, self.service or self.job)

    def profile_key(self, gpu_type: str) -> str:
        """Returns the key of the instance's profile: model/variant/gpuType."""
        return f"{self.model}/{self.variant}/{gpu_type}"


class AssignedGpu(Struct, rename="camel", omit_defaults=True, gc=False):
    """One GPU's settings."""

    index: GpuIndex
    uuid: Annotated[str, Meta(max_length=100, pattern=r"^[!-~]*$(?!\n)")] = ""  # which device the index meant
    clock_mhz: Frame | None = None
    cap_w: Amount | None = None


class Assignment(Struct, rename="camel", omit_defaults=True, gc=False):
    """The full desired state of one node. The agent refuses an epoch or generation lower than before."""

    node: Name
    version: Counter
    epoch: Counter
    generation: Counter
    contract: int = 1
    plan: Annotated[str, Meta(max_length=100)] = ""
    instances: Annotated[tuple[AssignedInstance, ...], Meta(max_length=4096)] = ()
    gpus: Annotated[tuple[AssignedGpu, ...], Meta(max_length=1024)] = ()
    handover: Reason = "overlap"  # Handover; an unknown word counts as strict
    handover_seconds: Amount = 120.0
    clients_per_gpu: Count = 48
    same_model_per_gpu: Count = 1


class EndpointCopy(Struct, rename="camel", omit_defaults=True, gc=False):
    """One copy of a service, as gateways are to treat it."""

    id: Identifier
    node: Name
    address: Address = ""  # host:port; empty if unknown
    weight: Annotated[float, Meta(gt=0, le=1e12)] = 1.0  # its planned rate
    drained: bool = False  # no new requests


class ServiceEndpoints(Struct, rename="camel", omit_defaults=True, gc=False):
    """A service's copies, and how many of its requests a gateway accepts."""

    service: ServiceName  # tenant/name
    copies: Annotated[tuple[EndpointCopy, ...], Meta(max_length=65_536)] = ()
    queue_limit: Count = 0  # requests open at once at one gateway, answered or waiting; 0: no limit
    shed_share: Annotated[float, Meta(ge=0, le=1)] = 0.0  # of its requests, answered 503 at once
    retry_after_seconds: Annotated[int, Meta(ge=1, le=3600)] = 2
    slo_ms: Amount = 0.0
    percentile: Percent = 0.0


class Endpoints(Struct, rename="camel", gc=False):
    """All services, as every following gateway is to route them."""

    version: Counter
    services: Annotated[tuple[ServiceEndpoints, ...], Meta(max_length=65_536)] = ()


class ServiceCounts(Struct, rename="camel", omit_defaults=True, gc=False):
    """A gateway's counts of a service since the gateway began."""

    service: ServiceName
    requests: Count = 0
    errors: Count = 0  # those shed are among them
    shed: Count = 0
    latency_counts: Annotated[tuple[Count, ...], Meta(max_length=len(LATENCY_EDGES_MS) + 1)] = ()
    open: Count = 0  # now: received, and not counted in `requests` yet
    timed: Count = 0  # answers compared with the SLO, to the millisecond
    late: Count = 0  # of those, answers later than the SLO


class GatewayCounts(Struct, rename="camel", omit_defaults=True, gc=False):
    """All of a gateway's counts since it began: totals, so that a lost message loses nothing."""

    began: Annotated[str, Meta(min_length=1, max_length=40, pattern=r"^[!-~]+$(?!\n)")]  # new when counting restarts
    sequence: Annotated[int, Meta(ge=0, lt=2**62)]  # orders a gateway's messages, also across restarts
    services: Annotated[tuple[ServiceCounts, ...], Meta(max_length=16_384)] = ()
    lost_lines: Count = 0  # requests that were not counted
    endpoints: Counter = 0  # the version in force; 0: none yet


class CountsTaken(Struct, rename="camel", gc=False):
    """The answer: this gateway's highest known sequence. Counts with a lower one were dropped and are sent again."""

    sequence: int


_NAME = re.compile(r"([a-z0-9]([-a-z0-9]*[a-z0-9])?)?")
_IDENTIFIER = re.compile(r"[!-~]+")
_MOST_KNOWN = 200_000
_known: set[tuple[str, str, str, str]] = set()


def misnamed(instances: Sequence[InstanceMinute]) -> str:
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

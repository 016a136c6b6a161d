"""The messages of a profiling campaign: what a node is to measure of a model on one of its GPUs, and what it found."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from agents.contract.fields import Amount, Count, GpuIndex, Identifier, Moment, Name, Reason, Sentence
from agents.contract.runtimes import OwnProbe, OwnRuntime

MOST_NEIGHBOURS = 3  # of the measured copy, at once
MOST_NEIGHBOUR_MODELS = 8  # of one campaign
MOST_SETTINGS = 256  # that one campaign measures
OWN = "own"  # in place of a template's name: agents that know none but templates refuse it by that


class BesideSetting(Struct, rename="camel", gc=False, frozen=True, forbid_unknown_fields=True):
    """The setting of a neighbour of the measured copy; `number` is its place in the list of the request."""

    number: Annotated[int, Meta(ge=0, lt=MOST_NEIGHBOUR_MODELS)]
    batch: Annotated[int, Meta(ge=1, le=256)]
    sm_percent: Annotated[float, Meta(gt=0, le=100)]


class CopySetting(Struct, rename="camel", omit_defaults=True, gc=False, frozen=True, forbid_unknown_fields=True):
    """The setting of the measured copy: requests of a batch, share of the SMs, clock of the GPU, and neighbours."""

    batch: Annotated[int, Meta(ge=1, le=256)]
    sm_percent: Annotated[float, Meta(gt=0, le=100)]
    clock_mhz: Annotated[int, Meta(ge=1, le=100_000)]
    beside: Annotated[tuple[BesideSetting, ...], Meta(max_length=MOST_NEIGHBOURS)] = ()


class NeighbourCopy(Struct, rename="camel", omit_defaults=True, gc=False, frozen=True):
    """A further copy beside the measured one, on the same GPU."""

    model: Name
    variant: Annotated[str, Meta(max_length=63)]
    template: Name
    setting: CopySetting
    args: dict[str, str | int | float | bool] | None = None


class ProfilingTask(Struct, rename="camel", omit_defaults=True, gc=False):
    """One setting to measure: a copy is started on an otherwise empty GPU, asked in a closed loop, and ended."""

    campaign: Identifier
    sequence: Annotated[int, Meta(ge=1, le=MOST_SETTINGS)]
    gpu: GpuIndex
    model: Name
    variant: Annotated[str, Meta(max_length=63)]
    template: Name
    setting: CopySetting
    attempt: Annotated[int, Meta(ge=1, le=100)] = 1  # at this setting; a failure names it, and so counts once
    args: dict[str, str | int | float | bool] | None = None
    runtime: OwnRuntime | None = None  # in place of a template: the user's own image or command
    example: OwnProbe | None = None  # a request that such a server can answer
    locks_clock: bool = False  # the clock is part of what is measured, and not just the GPU's highest
    beside: Annotated[tuple[NeighbourCopy, ...], Meta(max_length=MOST_NEIGHBOURS)] = ()  # each alone, then all at once
    accuracy: Annotated[float, Meta(gt=0, le=1)] = 0.04
    least_seconds: Annotated[float, Meta(ge=0, le=60)] = 3.0  # power is a mean of the last second, so it takes some
    most_seconds: Annotated[float, Meta(gt=0, le=600)] = 30.0


class SharedCopyTimes(Struct, rename="camel", omit_defaults=True, gc=False, frozen=True):
    """A copy that ran alone, and then beside the others, always busy."""

    model: Name
    variant: Annotated[str, Meta(max_length=63)]
    batch: Annotated[int, Meta(ge=1, le=256)]
    sm_percent: Annotated[float, Meta(gt=0, le=100)]
    alone_ms: Annotated[float, Meta(gt=0, le=1e9)]
    beside_ms: Annotated[float, Meta(gt=0, le=1e9)]
    spread_ms: Amount  # standard deviation of single batches beside the others
    samples: Annotated[int, Meta(ge=1, le=1_000_000)]


class MeasuredSetting(Struct, rename="camel", omit_defaults=True, gc=False):
    """The measurements of a copy at one setting."""

    sequence: Annotated[int, Meta(ge=1, le=MOST_SETTINGS)]
    setting: CopySetting
    at: Moment  # by the node's clock
    latency_ms: Annotated[float, Meta(gt=0, le=1e9)]  # mean execution time of one batch
    spread_ms: Amount  # standard deviation of single batches
    samples: Annotated[int, Meta(ge=1, le=1_000_000)]
    source: Reason = "server"  # whose clock timed the batches: server, client
    memory_gib: Amount = 0.0  # of the copy's processes on the device; 0: not reported
    idle_w: Amount = 0.0  # of the GPU without the copy; 0: not reported
    power_w: Amount = 0.0  # of the GPU while the copy is busy; 0: not reported
    sm_clock_mhz: Amount = 0.0  # mean while it is busy; 0: not reported
    start_seconds: Amount = 0.0  # from the start of the process until it is warm
    copies: Annotated[tuple[SharedCopyTimes, ...], Meta(max_length=MOST_NEIGHBOURS + 1)] = ()  # the measured copy first


class FailedSetting(Struct, rename="camel", omit_defaults=True, gc=False):
    """A setting that could not be measured, and why."""

    sequence: Annotated[int, Meta(ge=1, le=MOST_SETTINGS)]
    setting: CopySetting
    reason: Reason
    message: Sentence = ""
    attempt: Annotated[int, Meta(ge=1, le=100)] = 1  # that failed: the number in its task


class ProfilingReport(Struct, rename="camel", omit_defaults=True, gc=False):
    """A node's result; a report without one only asks what to measure."""

    campaign: Identifier
    measured: MeasuredSetting | None = None
    failed: FailedSetting | None = None
    occupied: Sentence = ""  # what still runs on the GPU, so that nothing can be measured there yet


class ProfilingAnswer(Struct, rename="camel", omit_defaults=True, gc=False):
    """The next task; without a task the node asks again after `wait_seconds`, while its campaign goes on."""

    taken: Count = 0  # measurements that the campaign has now
    task: ProfilingTask | None = None
    wait_seconds: Annotated[float, Meta(ge=0, le=600)] = 2.0
    is_over: bool = False

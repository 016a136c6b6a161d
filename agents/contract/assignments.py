"""The messages that assign a node its full desired state."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from agents.contract.fields import Amount, Count, Counter, GpuIndex, Identifier, Name, OptionalName, Percent, Reason
from agents.contract.logs import LogWanted
from agents.contract.runtimes import OwnRuntime, Text


def owner_name(tenant: str, name: str) -> str:
    """Names a service or job as plans do: tenant/name, where no tenant means the tenant `default`."""
    return f"{tenant or 'default'}/{name}"


class Frame(Struct, rename="camel", omit_defaults=True, gc=False):
    """A knob's planned value and range: the plan sets the range, and the node moves the knob inside it."""

    planned: Amount
    min: Amount
    max: Amount


SIGNALS = ("SIGTERM", "SIGUSR1", "SIGUSR2", "SIGINT", "SIGHUP")  # that may ask a process to save
ExitCode = Annotated[int, Meta(ge=0, le=255)]  # a process that a signal ended: 128 and the signal, as shells count
MetricName = Annotated[str, Meta(max_length=200, pattern=r"^([A-Za-z_:][A-Za-z0-9_:]*)?$(?!\n)")]


class JobTerms(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """The rules by which a job's process is followed: its work, what its exit codes mean, and how it saves."""

    units: Amount = 0.0  # steps or requests in all; 0: unknown
    done_codes: Annotated[tuple[ExitCode, ...], Meta(max_length=32)] = (0,)  # the job is complete
    failed_codes: Annotated[tuple[ExitCode, ...], Meta(max_length=32)] = ()  # it is not started again
    retries: Count = 4  # processes without progress that are replaced
    checkpoint_signal: Reason = ""  # one of SIGNALS, sent instead of the template's
    checkpoint_command: Annotated[tuple[Text, ...], Meta(max_length=100)] = ()  # beside a command of one's own
    checkpoint_seconds: Amount = 0.0  # that saving may take; 0: the template's
    progress_metric: MetricName = ""  # of its /metrics; without one it writes a file
    saved_metric: MetricName = ""
    swaps: bool = False  # on SIGTSTP it saves, moves its GPU memory to the host and stops; on SIGCONT it goes on


class AssignedAdapter(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """A LoRA adapter that a copy of a language model holds; its folder is relative to the node's folder of models."""

    name: Annotated[str, Meta(max_length=63, pattern=r"^[A-Za-z0-9][-A-Za-z0-9_.]*$(?!\n)")]
    path: Annotated[str, Meta(max_length=200)]


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
    runtime: OwnRuntime | None = None  # in place of a template: the user's own image or command
    sm_percent: Percent = 0.0
    memory_gib: Amount = 0.0
    batch: Frame | None = None
    batch_timeout_ms: Amount = 0.0
    rate_per_second: Amount = 0.0
    slo_ms: Amount = 0.0  # 0: none, as for a job
    percentile: Percent = 0.0
    tpot_ms: Amount = 0.0  # of each token after the first; with it, slo_ms is of the first token
    by_prefix: bool = False  # requests that begin alike belong on one copy
    dedicated: bool = False
    priority: Amount = 100.0
    preemptible: bool = True  # a job that may be stopped when services need its memory
    terms: JobTerms | None = None  # of a job
    gpus: Annotated[tuple[GpuIndex, ...], Meta(max_length=64)] = ()  # all of them, where it has several; `gpu` is first
    adapters: Annotated[tuple[AssignedAdapter, ...], Meta(max_length=256)] = ()  # loaded and unloaded while it serves

    @property
    def owner(self) -> str:
        """The service or job, as plans name it: tenant/name."""
        return owner_name(self.tenant, self.service or self.job)

    @property
    def all_gpus(self) -> tuple[int, ...]:
        """The indexes of all its GPUs. On each it has the same memory, and several belong to it alone."""
        return self.gpus or (self.gpu,)

    @property
    def is_wide(self) -> bool:
        """True if it has several GPUs, whole and outside MPS: a process cannot be a client of two daemons."""
        return len(self.gpus) > 1

    def profile_key(self, gpu_type: str) -> str:
        """Returns the key of the instance's profile: model/variant/gpuType."""
        return f"{self.model}/{self.variant}/{gpu_type}"


class AssignedGpu(Struct, rename="camel", omit_defaults=True, gc=False):
    """One GPU's settings."""

    index: GpuIndex
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
    # Jobs as they ran here: where a process of one runs, it waits in host memory and holds nothing of its GPU.
    swapped: Annotated[tuple[AssignedInstance, ...], Meta(max_length=4096)] = ()
    gpus: Annotated[tuple[AssignedGpu, ...], Meta(max_length=1024)] = ()
    handover: Reason = "overlap"  # or "strict"; an unknown word counts as strict
    handover_seconds: Amount = 120.0
    clients_per_gpu: Count = 48
    same_model_per_gpu: Count = 1
    logs: Annotated[tuple[LogWanted, ...], Meta(max_length=256)] = ()  # asked for now; no part of the desired state

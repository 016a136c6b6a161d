"""The messages that assign a node its full desired state."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from agents.contract.fields import Amount, Count, Counter, GpuIndex, Identifier, Name, OptionalName, Percent, Reason


def owner_name(tenant: str, name: str) -> str:
    """Names a service or job as plans do: tenant/name, where no tenant means the tenant `default`."""
    return f"{tenant or 'default'}/{name}"


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

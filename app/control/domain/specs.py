"""Reads fields of declared specs with their types, and with the defaults of manifests.

A spec stays as it was written and validated: to parse it into its model again would cost seconds in every cycle.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TypeAlias, cast

from app.manifests.fleet import PolicySpec
from app.manifests.model import WrittenSpec
from app.manifests.prices import price_per_hour
from app.manifests.quantities import Purchase
from app.manifests.served import ProfileSpec
from app.manifests.uncertain import value_at
from app.manifests.work import JobSpec, ServiceSpec

Spec: TypeAlias = WrittenSpec

START_SECONDS = float(ProfileSpec.model_fields["start_seconds"].default)  # also of a copy without a profile
JOB_TEMPLATE, BATCH_TEMPLATE = "gpuwright-train", "gpuwright-batch"
RETRIES: int = JobSpec.model_fields["retries"].default
LEARNED = "learned"  # marks a job's profile with speeds that its run has shown
ASSUMED_JOB_SECONDS = 3600.0  # for all its work on a whole GPU, as long as nothing is known of its speed
LEAST_JOB_PERCENT = 10
PROFILE_QUANTILE: float = PolicySpec.model_fields["profile_quantile"].default
RATE_PER_SECOND = float(ServiceSpec.model_fields["rate_per_second"].default)
PRICING: str = PolicySpec.model_fields["pricing"].default
JOBS_PER_GPU: int = PolicySpec.model_fields["jobs_per_gpu"].default
MODE: str = PolicySpec.model_fields["mode"].default
RISK = float(PolicySpec.model_fields["risk"].default)
DOWN_SECONDS = float(PolicySpec.model_fields["down_seconds"].default)
MIN_INSTANCES: int = ServiceSpec.model_fields["min_instances"].default
PRIORITIES: Mapping[str, int] = {
    "Service": ServiceSpec.model_fields["priority"].default,
    "Job": JobSpec.model_fields["priority"].default,
}


def model_of(service_or_profile: Spec) -> str:
    return str(service_or_profile["model"])


def gpu_type_of(node_or_profile: Spec) -> str:
    return str(node_or_profile["gpuType"])


def gpu_count(node: Spec) -> int:
    return int(node["gpus"])


def linked_gpus(node: Spec, gpu_type: Spec) -> int:
    """Returns how many GPUs of the node are linked with each other, counted from its first; 0: all of them."""
    return int(node.get("nvlinkGroup") or gpu_type.get("nvlinkGroup") or 0)


def purchase_of(node: Spec) -> Purchase:
    """Returns how the node is paid for."""
    return cast(Purchase, node.get("purchase", "onDemand"))


def node_price(node: Spec, gpu_type: Spec) -> float:
    """Returns the hourly price of a GPU of the node: for its type, region and purchase."""
    return price_per_hour(gpu_type, node.get("region", "default"), purchase_of(node))


def pricing_of(policy: Spec) -> str:
    """Returns what services pay for: `gpu`, `share` or `node`."""
    return str(policy.get("pricing", PRICING))


def usual_price(gpu_type: Spec) -> float:
    """Returns the hourly price of a GPU where no other is named for its region and purchase."""
    return float(gpu_type["pricePerHour"])


def memory_gib(gpu_type: Spec) -> float:
    return float(gpu_type["memoryGib"])


def rate_per_second(service: Spec) -> float:
    """Returns the declared rate of a service."""
    return float(service.get("ratePerSecond", RATE_PER_SECOND))


def slo_latency_ms(service: Spec) -> float:
    """Returns the time within which an answer is promised; of a language model, the first token of it."""
    slo = service["slo"]
    return float(slo["latencyMs"] if "latencyMs" in slo else slo["ttftMs"])


def slo_percentile(service: Spec) -> float:
    return float(service["slo"]["percentile"])


def risk_of(service: Spec, policy: Spec) -> float:
    """Returns the share of hours in which load above the plan may overspend a service's error budget."""
    return float(service.get("risk", policy.get("risk", RISK)))


def own_mode(service: Spec) -> str | None:
    """Returns the mode that overrides the policy's, if there is one."""
    return service.get("mode")


def min_instances(service: Spec) -> int:
    return int(service.get("minInstances", MIN_INSTANCES))


def jobs_per_gpu(policy: Spec) -> int:
    """Returns how many jobs may share a GPU."""
    return int(policy.get("jobsPerGpu", JOBS_PER_GPU))


def fleet_mode(policy: Spec) -> str:
    """Returns the mode of services that have none of their own."""
    return str(policy.get("mode", MODE))


def down_seconds(policy: Spec) -> float:
    """Returns how long a copy that has run may be down before it starts elsewhere."""
    return float(policy.get("downSeconds", DOWN_SECONDS))


def quantile_of(policy: Spec) -> float:
    """Returns which quantile of a profile's uncertain values plans count on."""
    return float(policy.get("profileQuantile", PROFILE_QUANTILE))


def start_seconds_of(profile: Spec) -> float:
    """Returns the time from start to warm: the 0.9 quantile where it is uncertain."""
    return value_at(profile.get("startSeconds", START_SECONDS), PROFILE_QUANTILE)


def profile_key(profile: Spec) -> str:
    """Returns model/variant/gpuType."""
    return f"{profile['model']}/{profile['variant']}/{profile['gpuType']}"


def unit_of(job: Spec) -> str:
    """Returns what a job counts: steps of training, or requests."""
    return "steps" if job["type"] == "training" else "requests"


def units_of(job: Spec) -> float:
    """Returns all steps or requests of a job; requests in a file are counted by its manifest."""
    units = job[unit_of(job)]
    return float(job["requestCount"] if isinstance(units, str) else units)


def retries_of(job: Spec) -> int:
    """Returns how many processes of a job may fail in a row, without progress, and be replaced."""
    return int(job.get("retries", RETRIES))


def job_template(job: Spec) -> str:
    """Returns the template that runs a job; empty where it brings an image or command of its own."""
    runtime = job.get("runtime")
    if runtime:
        return str(runtime.get("template") or "")
    return BATCH_TEMPLATE if isinstance(job.get("requests"), str) else JOB_TEMPLATE


def job_tables(job: Spec) -> dict[str, tuple[Mapping[str, float], Spec]]:
    """Returns, by GPU type, the units a second by SM%, and the whole profile; an unknown speed is assumed."""
    field, assumed = speed_field(job), scale_speeds(units_of(job) / ASSUMED_JOB_SECONDS)
    return {gpu_type: (profile.get(field, assumed), profile) for gpu_type, profile in job["profiles"].items()}


def speed_field(job: Spec) -> str:
    """Returns the field of a job's profile that has its speeds."""
    return f"{unit_of(job)}PerSecond"


def scale_speeds(whole_per_second: float) -> dict[str, float]:
    """Returns speeds by SM%, in proportion to the share, of a job with this one on a whole GPU."""
    return {str(sm): whole_per_second * sm / 100 for sm in (LEAST_JOB_PERCENT, 100)}


def is_preemptible(job: Spec) -> bool:
    return bool(job.get("preemptible", True))


def may_swap(job: Spec) -> bool:
    """Returns whether a preempted job's process may wait in host memory."""
    return bool(job.get("swap", False)) and is_preemptible(job)


def moment(text: str | None) -> datetime | None:
    """Reads a date and time of a manifest."""
    return None if text is None else datetime.fromisoformat(text.upper()).astimezone(UTC)

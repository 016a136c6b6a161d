"""Text for Prometheus: GPUs under DCGM's names and units, each copy, and the agent itself.

Names, units and labels are those of dcgm-exporter up to 4.8, which dashboards and alerts know; 4.9 renames some of
them and turns MHz, MiB, mJ and percent into base units. A value that a device does not report has no line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from agents.prometheus.writing import Family, add_labels, format_families, format_labels, single
from agents.run.view import AgentView, CopyView, GpuView
from agents.seams.device import GpuDevice, GpuReading

MIB_PER_GIB = 1024
BYTES_PER_GIB = 2**30


def render(view: AgentView) -> bytes:
    """Returns the current text."""
    return format_families(families(view)).encode()


def families(view: AgentView) -> tuple[Family, ...]:
    """Returns all families, including those without a sample at the moment."""
    return *_list_gpus(view), *_list_copies(view), *_list_agent(view)


def _list_gpus(view: AgentView) -> Iterator[Family]:
    labels = {shown.gpu.uuid: _gpu_labels(shown.gpu, view.hostname) for shown in view.gpus}
    readings = [(shown.gpu, shown.reading) for shown in view.gpus if shown.reading is not None]

    def read(name: str, kind: str, text: str, value: Callable[[GpuDevice, GpuReading], float | None]) -> Family:
        return Family(name, kind, text, [(labels[gpu.uuid], value(gpu, reading)) for gpu, reading in readings])

    def known(name: str, text: str, value: Callable[[GpuView], float | None]) -> Family:
        return Family(name, "gauge", text, [(labels[shown.gpu.uuid], value(shown)) for shown in view.gpus])

    reasons = [
        (add_labels(labels[gpu.uuid], reason=reason), 1)
        for gpu, reading in readings
        for reason in sorted(reading.clock_reasons)
    ]
    yield read("DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz).", lambda _, now: now.sm_clock_mhz)
    yield read("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C).", lambda _, now: now.temperature_c)
    yield read("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).", lambda _, now: now.power_w)
    energy = "Energy since the driver was loaded (in mJ)."
    yield read("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", energy, lambda _, now: now.energy_mj)
    yield read("DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %).", lambda _, now: now.utilization_percent)
    yield read("DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB).", lambda _, now: _read_used_mib(now))
    yield read("DCGM_FI_DEV_FB_FREE", "gauge", "Framebuffer memory free (in MiB).", _free_mib)
    yield known("DCGM_FI_DEV_XID_ERRORS", "Value of the last XID error; 0: none.", lambda shown: shown.last_xid)
    ecc = "Uncorrectable ECC errors since the driver was loaded."
    yield read("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter", ecc, lambda _, now: now.ecc_uncorrected)
    yield known("DCGM_FI_DEV_POWER_MGMT_LIMIT", "Power limit in force (in W).", lambda shown: shown.cap_w)
    locked = "Clock that the SMs are locked at; absent when unlocked."
    yield known("gpuwright_agent_gpu_locked_clock_mhz", locked, lambda shown: shown.locked_clock_mhz)
    yield Family("gpuwright_agent_gpu_clock_reason", "gauge", "1 for each reason that lowers the clocks now.", reasons)
    yield known("gpuwright_agent_gpu_healthy", "1 if the GPU is healthy.", lambda shown: shown.healthy)
    yield known("gpuwright_agent_gpu_fenced", "1 if the GPU takes no new copies.", lambda shown: shown.fenced)


def _gpu_labels(gpu: GpuDevice, hostname: str) -> str:
    device = f"nvidia{gpu.index}"
    names = {"gpu": str(gpu.index), "UUID": gpu.uuid, "pci_bus_id": gpu.pci, "device": device, "modelName": gpu.name}
    return format_labels(**names, Hostname=hostname)


def _read_used_mib(reading: GpuReading) -> float:
    return reading.memory_used_gib * MIB_PER_GIB


def _free_mib(gpu: GpuDevice, reading: GpuReading) -> float:
    return max(0.0, gpu.memory_gib - reading.memory_used_gib) * MIB_PER_GIB


def _list_copies(view: AgentView) -> Iterator[Family]:
    shown = [(_copy_labels(copy, view.hostname), copy) for copy in view.copies]
    stages = [(add_labels(labels, stage=copy.stage), 1) for labels, copy in shown]

    def family(name: str, kind: str, text: str, of: str, scale: float = 1) -> Family:
        values = [(labels, getattr(copy, of)) for labels, copy in shown]
        samples = [(labels, None if value is None else value * scale) for labels, value in values]
        return Family(f"gpuwright_copy_{name}", kind, text, samples)

    yield Family("gpuwright_copy_stage", "gauge", "1 for the stage that a copy is in.", stages)
    yield family("sm_percent", "gauge", "Limit of its SM share, in percent.", "sm_percent")
    yield family("sm_count", "gauge", "SMs that it may use.", "sm_count")
    yield family("memory_limit_bytes", "gauge", "Limit of its GPU memory.", "memory_limit_gib", BYTES_PER_GIB)
    yield family("memory_bytes", "gauge", "GPU memory that it holds.", "memory_gib", BYTES_PER_GIB)
    yield family("requests_total", "counter", "Requests answered.", "requests")
    yield family("errors_total", "counter", "Requests answered with an error.", "errors")
    yield family("busy_seconds_total", "counter", "Seconds spent computing.", "busy_seconds")
    yield family("steps_total", "counter", "Steps of a job.", "steps")


def _copy_labels(copy: CopyView, hostname: str) -> str:
    owner = {"tenant": copy.tenant, "service": copy.service, "job": copy.job}
    return format_labels(
        copy=copy.copy, instance=copy.instance, **owner, gpu=str(copy.gpu), UUID=copy.uuid, Hostname=hostname
    )


def _list_agent(view: AgentView) -> Iterator[Family]:
    here = format_labels(Hostname=view.hostname)

    def family(name: str, kind: str, text: str, value: float | None) -> Family:
        return single(f"gpuwright_agent_{name}", kind, value, text, here)

    def split(name: str, kind: str, text: str, label: str, values: Mapping[str, int]) -> Family:
        samples = [(add_labels(here, **{label: key}), float(values[key])) for key in sorted(values)]
        return Family(f"gpuwright_agent_{name}", kind, text, samples)

    yield family("epoch", "gauge", "Epoch of the latest assignment.", view.epoch)
    yield family("generation", "gauge", "Generation of the latest assignment.", view.generation)
    yield family("converged", "gauge", "1 if the node runs what is assigned.", view.converged)
    yield family("stale_assignments_total", "counter", "Assignments refused as outdated.", view.stale_assignments)
    yield family("silent_seconds", "gauge", "Seconds since the control plane last answered.", view.silent_seconds)
    yield family("excursions", "gauge", "Knobs away from their planned value.", view.excursions)
    yield split(
        "held_back", "gauge", "Instances that differ from their assignment, by reason.", "reason", view.held_back
    )
    yield split(
        "handovers_total", "counter", "Handovers since the agent started, by outcome.", "outcome", view.handovers
    )
    version = add_labels(here, version=view.agent_version)
    yield single("gpuwright_agent_info", "gauge", 1, "Version of the agent.", version)

"""Text for Prometheus: GPUs under DCGM's names and units, each copy, and the agent itself.

Names, units and labels are those of dcgm-exporter up to 4.8, which dashboards and alerts know; 4.9 renames some of
them and turns MHz, MiB, mJ and percent into base units. A value that a device does not report has no line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agents.prometheus.exposition import Family, add_labels, format_families, format_labels
from agents.prometheus.view import AgentView

MIB_PER_GIB = 1024
BYTES_PER_GIB = 2**30


def render(view: AgentView) -> bytes:
    """Returns the current text."""
    return format_families(families(view)).encode()


def families(view: AgentView) -> tuple[Family, ...]:
    """Returns all families, including those without a sample at the moment."""
    return *_of_gpus(view), *_of_copies(view), *_of_agent(view)


def _of_gpus(view: AgentView) -> Iterator[Family]:
    labels = {
        shown.gpu.uuid: format_labels(
            gpu=str(shown.gpu.index),
            UUID=shown.gpu.uuid,
            pci_bus_id=shown.gpu.pci,
            device=f"nvidia{shown.gpu.index}",
            modelName=shown.gpu.name,
            Hostname=view.hostname,
        )
        for shown in view.gpus
    }
    read = [(labels[shown.gpu.uuid], shown.gpu, shown.reading) for shown in view.gpus if shown.reading is not None]

    def samples(of: str) -> list[tuple[str, float | None]]:
        return [(text, getattr(reading, of)) for text, _, reading in read]

    used = [(text, reading.memory_used_gib * MIB_PER_GIB) for text, _, reading in read]
    free = [(text, max(0.0, gpu.memory_gib - reading.memory_used_gib) * MIB_PER_GIB) for text, gpu, reading in read]
    shown = [(labels[shown.gpu.uuid], shown) for shown in view.gpus]
    yield Family("DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz).", samples("sm_clock_mhz"))
    yield Family("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C).", samples("temperature_c"))
    yield Family("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).", samples("power_w"))
    yield Family(
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "counter",
        "Energy since the driver was loaded (in mJ).",
        samples("energy_mj"),
    )
    yield Family("DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %).", samples("utilization_percent"))
    yield Family("DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB).", used)
    yield Family("DCGM_FI_DEV_FB_FREE", "gauge", "Framebuffer memory free (in MiB).", free)
    yield Family(
        "DCGM_FI_DEV_XID_ERRORS",
        "gauge",
        "Value of the last XID error; 0: none.",
        [(text, s.last_xid) for text, s in shown],
    )
    yield Family(
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter", "Uncorrectable ECC errors since the driver was loaded.",
        samples("ecc_uncorrected"),
    )  # fmt: skip
    yield Family(
        "DCGM_FI_DEV_POWER_MGMT_LIMIT", "gauge", "Power limit in force (in W).", [(text, s.cap_w) for text, s in shown]
    )
    yield Family(
        "gpuwright_agent_gpu_locked_clock_mhz", "gauge", "Clock that the SMs are locked at; absent when unlocked.",
        [(text, s.locked_clock_mhz) for text, s in shown],
    )  # fmt: skip
    yield Family(
        "gpuwright_agent_gpu_clock_reason", "gauge", "1 for each reason that lowers the clocks now.",
        [
            (add_labels(text, reason=reason), 1)
            for text, _, reading in read
            for reason in sorted(reading.clock_reasons)
        ],
    )  # fmt: skip
    yield Family(
        "gpuwright_agent_gpu_healthy", "gauge", "1 if the GPU is healthy.", [(text, s.healthy) for text, s in shown]
    )
    yield Family(
        "gpuwright_agent_gpu_fenced",
        "gauge",
        "1 if nothing is started on the GPU.",
        [(text, s.fenced) for text, s in shown],
    )


def _of_copies(view: AgentView) -> Iterator[Family]:
    shown = [
        (
            format_labels(
                copy=copy.copy, instance=copy.instance, tenant=copy.tenant, service=copy.service, job=copy.job,
                gpu=str(copy.gpu), UUID=copy.uuid, Hostname=view.hostname,
            ),
            copy,
        )
        for copy in view.copies
    ]  # fmt: skip

    def family(name: str, kind: str, text: str, of: str, scale: float = 1) -> Family:
        values = [(labels, getattr(copy, of)) for labels, copy in shown]
        return Family(name, kind, text, [(labels, None if v is None else v * scale) for labels, v in values])

    yield Family(
        "gpuwright_copy_stage", "gauge", "1 for the stage that a copy is in.",
        [(add_labels(labels, stage=copy.stage), 1) for labels, copy in shown],
    )  # fmt: skip
    yield family("gpuwright_copy_sm_percent", "gauge", "Limit of its SM share, in percent.", "sm_percent")
    yield family("gpuwright_copy_sm_count", "gauge", "SMs that it may use.", "sm_count")
    yield family(
        "gpuwright_copy_memory_limit_bytes", "gauge", "Limit of its GPU memory.", "memory_limit_gib", BYTES_PER_GIB
    )
    yield family("gpuwright_copy_memory_bytes", "gauge", "GPU memory that it holds.", "memory_gib", BYTES_PER_GIB)
    yield family("gpuwright_copy_requests_total", "counter", "Requests answered.", "requests")
    yield family("gpuwright_copy_errors_total", "counter", "Requests answered with an error.", "errors")
    yield family("gpuwright_copy_busy_seconds_total", "counter", "Seconds spent computing.", "busy_seconds")
    yield family("gpuwright_copy_steps_total", "counter", "Steps of a job.", "steps")


def _of_agent(view: AgentView) -> Iterator[Family]:
    here = format_labels(Hostname=view.hostname)

    def one(name: str, kind: str, text: str, value: float | None) -> Family:
        return Family(f"gpuwright_agent_{name}", kind, text, [(here, value)])

    def by(name: str, kind: str, text: str, label: str, values: Mapping[str, int]) -> Family:
        samples = [(add_labels(here, **{label: key}), float(values[key])) for key in sorted(values)]
        return Family(f"gpuwright_agent_{name}", kind, text, samples)

    yield one("epoch", "gauge", "Epoch of the latest assignment.", view.epoch)
    yield one("generation", "gauge", "Generation of the latest assignment.", view.generation)
    yield one("converged", "gauge", "1 if the node runs what is assigned.", view.converged)
    yield one(
        "stale_assignments_total",
        "counter",
        "Assignments refused as outdated.",
        view.stale_assignments,
    )
    yield one("silent_seconds", "gauge", "Seconds since the control plane last answered.", view.silent_seconds)
    yield one("excursions", "gauge", "Knobs away from their planned value.", view.excursions)
    yield by("held_back", "gauge", "Instances that differ from their assignment, by reason.", "reason", view.held_back)
    yield by("handovers_total", "counter", "Handovers since the agent started, by outcome.", "outcome", view.handovers)
    version = add_labels(here, version=view.agent_version)
    yield Family("gpuwright_agent_info", "gauge", "Version of the agent.", [(version, 1)])

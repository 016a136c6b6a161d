"""The agent's /metrics, read by a real Prometheus parser, and a server that no client can tie up."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from agents.run.metrics import render
from agents.run.view import AgentView, CopyView, GpuView
from agents.seams.device import GpuDevice, GpuReading

GPU = GpuDevice(
    index=1, uuid="GPU-1", name="Tesla V100-PCIE-16GB", pci="00000000:3B:00.0", memory_gib=16.0, sm_count=80,
    clocks_mhz=(135, 1380), power_min_w=100, power_max_w=250, power_default_w=250, abilities=frozenset(),
)  # fmt: skip
READING = GpuReading(
    memory_used_gib=4.5, utilization_percent=37.0, power_w=143.25, energy_mj=2**60 + 1, temperature_c=61.0,
    sm_clock_mhz=1380.0, clock_reasons=frozenset({"power_cap"}), ecc_uncorrected=0,
)  # fmt: skip
COPY = CopyView(
    copy="shop-search-1.3", instance="shop-search-1", gpu=1, uuid="GPU-1", stage="ready", tenant="shop",
    service="search", sm_percent=30.0, sm_count=24, memory_limit_gib=2.0, memory_gib=1.5, requests=120, errors=1,
    busy_seconds=33.5,
)  # fmt: skip


def samples(view: AgentView) -> dict[str, list[tuple[dict[str, str], float]]]:
    """By name, as a Prometheus parser reads them."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(render(view).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_a_gpu_has_dcgms_names_units_and_labels() -> None:
    shown = samples(
        AgentView("node-1", gpus=[GpuView(GPU, READING, last_xid=79, healthy=False, fenced=True, cap_w=150.0)])
    )
    labels = {
        "gpu": "1", "UUID": "GPU-1", "pci_bus_id": "00000000:3B:00.0", "device": "nvidia1",
        "modelName": "Tesla V100-PCIE-16GB", "Hostname": "node-1",
    }  # fmt: skip
    values = {
        "DCGM_FI_DEV_SM_CLOCK": 1380.0,
        "DCGM_FI_DEV_GPU_TEMP": 61.0,
        "DCGM_FI_DEV_POWER_USAGE": 143.25,
        "DCGM_FI_DEV_GPU_UTIL": 37.0,
        "DCGM_FI_DEV_FB_USED": 4608.0,
        "DCGM_FI_DEV_FB_FREE": 11776.0,
        "DCGM_FI_DEV_XID_ERRORS": 79.0,
        "DCGM_FI_DEV_POWER_MGMT_LIMIT": 150.0,
        "gpuwright_agent_gpu_healthy": 0.0,
        "gpuwright_agent_gpu_fenced": 1.0,
    }
    assert {name: shown[name] for name in values} == {name: [(labels, value)] for name, value in values.items()}
    assert shown["gpuwright_agent_gpu_clock_reason"] == [(labels | {"reason": "power_cap"}, 1.0)]


def test_an_energy_counter_keeps_its_last_digit() -> None:
    text = render(AgentView("node-1", gpus=[GpuView(GPU, READING)])).decode()
    assert f"}} {2**60 + 1}\n" in text


def test_what_a_device_does_not_say_is_left_out() -> None:
    shown = samples(AgentView("node-1", gpus=[GpuView(GPU, GpuReading(memory_used_gib=1.0))]))
    assert "DCGM_FI_DEV_FB_USED" in shown
    assert "DCGM_FI_DEV_POWER_USAGE" not in shown
    unread = samples(AgentView("node-1", gpus=[GpuView(GPU, None, healthy=False)]))
    assert {name for name in unread if name.startswith("DCGM")} == {"DCGM_FI_DEV_XID_ERRORS"}
    assert unread["gpuwright_agent_gpu_healthy"][0][1] == 0.0


def test_no_value_is_ever_infinite_or_no_number() -> None:
    reading = GpuReading(memory_used_gib=float("nan"), power_w=float("inf"))
    text = render(AgentView("node-1", gpus=[GpuView(GPU, reading)]))
    assert b"nan" not in text.lower()
    assert b"inf}" not in text
    assert b"DCGM_FI_DEV_POWER_USAGE" not in text


def test_a_copy_shows_whose_it_is_and_what_it_was_given() -> None:
    shown = samples(AgentView("node-1", copies=[COPY]))
    labels, percent = shown["gpuwright_copy_sm_percent"][0]
    assert percent == 30.0
    assert labels.items() >= {"copy": "shop-search-1.3", "service": "search", "tenant": "shop", "gpu": "1"}.items()
    assert "job" not in labels
    assert shown["gpuwright_copy_memory_bytes"][0][1] == 1.5 * 2**30
    assert shown["gpuwright_copy_requests_total"][0][1] == 120
    assert shown["gpuwright_copy_stage"][0][0]["stage"] == "ready"


def test_the_agent_shows_what_it_holds_back_and_why() -> None:
    view = AgentView(
        "node-1", generation=12, stale_assignments=3, held_back={"no_memory": 2, "gpu_fenced": 1},
        handovers={"done": 40, "rolled_back": 1},
    )  # fmt: skip
    shown = samples(view)
    assert shown["gpuwright_agent_generation"][0][1] == 12
    assert shown["gpuwright_agent_stale_assignments_total"][0][1] == 3
    assert {labels["reason"]: value for labels, value in shown["gpuwright_agent_held_back"]} == view.held_back
    assert {labels["outcome"]: value for labels, value in shown["gpuwright_agent_handovers_total"]} == view.handovers
    assert "gpuwright_agent_silent_seconds" not in shown


def test_a_name_cannot_break_out_of_its_label() -> None:
    name = 'a"} 1\nDCGM_FI_DEV_GPU_TEMP{gpu="\\'
    shown = samples(AgentView(name))
    assert shown["gpuwright_agent_epoch"][0][0]["Hostname"] == name
    assert "DCGM_FI_DEV_GPU_TEMP" not in shown

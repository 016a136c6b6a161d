"""Records what NVML and the MPS daemon of the GPU answer, and which settings take effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pynvml

from agents.devices.mps import processes
from agents.devices.mps.program import Program
from agents.devices.nvml.device import NvmlDevice
from agents.devices.nvml.reading import clock_reasons, ecc_uncorrected
from agents.devices.nvml.troubles import read_if_reported
from agents.profiling.measure import measure
from agents.seams.device import Applied, DeviceError
from agents.seams.mps_variables import VISIBLE_DEVICES_VARIABLE
from scripts.gpukit.privacy import hide_commands
from scripts.gpukit.stand import Stand

FULL = 100.0
ASK_SECONDS = 5.0
CHECKED_CLOCKS = 3


def read_device(stand: Stand) -> dict[str, object]:
    """Returns the GPU as the agent sees it, and NVML's own replies, from which a stand-in can be made."""
    device = stand.drivers.device
    assert isinstance(device, NvmlDevice)
    reading = asdict(device.read(stand.gpu.uuid))
    return {
        "gpu": asdict(stand.gpu) | {"abilities": sorted(stand.gpu.abilities), "serial": ""},  # it names the board
        "reading": reading | {"clock_reasons": sorted(reading["clock_reasons"])},
        "replies": _replies(stand.gpu.index),
    }


def _replies(index: int) -> Mapping[str, str | int]:
    """Returns NVML's replies under the names that the stand-in for it uses; without those that are not supported."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)

    def ask(name: str, *words: Any) -> Any:
        return read_if_reported(getattr(pynvml, f"nvmlDeviceGet{name}"), handle, *words)

    capability, limits = ask("CudaComputeCapability"), ask("PowerManagementLimitConstraints") or (None, None)
    attributes, utilization = ask("Attributes"), ask("UtilizationRates")
    memory_clocks = ask("SupportedMemoryClocks") or []
    clocks = ask("SupportedGraphicsClocks", max(memory_clocks)) if memory_clocks else []
    found = {
        "name": ask("Name"),
        "capability": None if capability is None else f"{capability[0]}.{capability[1]}",
        "sm_count": attributes and attributes.multiprocessorCount,
        "cores": ask("NumGpuCores"),
        "memory_bytes": pynvml.nvmlDeviceGetMemoryInfo(handle).total,
        "memory_clocks": _words(memory_clocks),
        "clocks": _words(clocks or []),
        "power_min_mw": limits[0],
        "power_max_mw": limits[1],
        "power_default_mw": ask("PowerManagementDefaultLimit"),
        "power_limit_mw": ask("PowerManagementLimit"),
        "power_mw": ask("PowerUsage"),
        "energy_mj": ask("TotalEnergyConsumption"),
        "utilization": utilization and utilization.gpu,
        "temperature_c": ask("Temperature", pynvml.NVML_TEMPERATURE_GPU),
        "sm_clock_mhz": ask("ClockInfo", pynvml.NVML_CLOCK_SM),
        "clock_reasons": clock_reasons(handle),
        "ecc_uncorrected": ecc_uncorrected(handle),
        "compute_mode": ask("ComputeMode"),
        "event_types": ask("SupportedEventTypes"),
    }
    return {name: value for name, value in found.items() if value is not None}


def _words(values: list[int]) -> str | None:
    return " ".join(str(value) for value in sorted(values)) or None


def try_settings(stand: Stand) -> dict[str, object]:
    """Caps the power and sets the compute mode, reads both back, and restores them."""
    device, gpu = stand.drivers.device, stand.gpu
    middle_w = round((gpu.power_min_w + gpu.power_max_w) / 2)
    tried: dict[str, Callable[[], Applied]] = {
        f"power limit {middle_w} W": lambda: device.cap_power(gpu.uuid, middle_w),
        "power limit of the device": lambda: device.cap_power(gpu.uuid, None),
        "exclusive compute mode": lambda: device.exclusive(gpu.uuid, True),
        "default compute mode": lambda: device.exclusive(gpu.uuid, False),
    }
    found: dict[str, object] = {}
    for name, do in tried.items():
        try:
            found[name] = asdict(do())
        except DeviceError as error:
            found[name] = {"refused": str(error)}
    return found


def try_clocks(stand: Stand) -> dict[str, object]:
    """Locks clocks from the lowest to the highest, and measures one load at each."""
    clocks = stand.gpu.clocks_mhz
    last = min(CHECKED_CLOCKS, len(clocks)) - 1
    rows: list[dict[str, object]] = []
    for number in stand.time.take(range(last + 1)):
        mhz = clocks[number * (len(clocks) - 1) // max(1, last)]
        task = stand.task("arithmetic", stand.args("arithmetic"), FULL, clock_mhz=mhz, sequence=number + 1)
        found = measure(task, stand.seat, lambda: "")
        rows.append(
            {
                "clock_mhz": mhz,
                "read_mhz": found.sm_clock_mhz,
                "latency_ms": found.latency_ms,
                "idle_w": found.idle_w,
                "power_w": found.power_w,
            }
        )
    return {"rows": rows}


def ask_mps(stand: Stand) -> dict[str, object]:
    """Returns what the MPS daemon prints while one copy is its client, that copy, and whether we know MPS as ours."""
    program, uuid = Program(stand.folder / "mps", stand.program), stand.gpu.uuid
    pipe, logs = program.pipe(uuid), program.logs(uuid)
    daemon = pipe / processes.PID_FILE
    ours = {processes.PIPE: str(pipe), processes.LOGS: str(logs), VISIBLE_DEVICES_VARIABLE: uuid}
    with stand.warm(stand.task("arithmetic", stand.args("arithmetic"), FULL)) as warm:
        assert warm.copy.running is not None
        server = program.say(uuid, "get_server_list\n", ASK_SECONDS).decode().strip()
        commands = ["get_server_list", f"get_server_status {server}", f"get_client_list {server}", "ps"]
        commands += ["get_default_active_thread_percentage", "device_query", "get_server_status 1"]
        printed = {word: program.say(uuid, f"{word}\n", ASK_SECONDS).decode(errors="replace") for word in commands}
        return {
            "copy": warm.copy.running.pid,
            "clients": sorted(stand.drivers.mps.clients(uuid)),
            "printed": printed | {"ps": hide_commands(printed["ps"])},
            "daemon": _describe_environment(daemon.read_text().strip() if daemon.exists() else "", ours),
            "server": _describe_environment(server, ours),
            "foreign": len(processes.find_foreign(uuid, pipe, logs)),
        }


def _describe_environment(pid: str, ours: Mapping[str, str]) -> Mapping[str, str]:
    """Returns whether a process of MPS has the variables by which the agent knows its own, as they were given."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError as error:
        return dict.fromkeys(ours, str(error.strerror))
    found = dict(word.split("=", 1) for word in words if "=" in word)
    return {
        name: "missing" if name not in found else "as given" if found[name] == value else "otherwise"
        for name, value in ours.items()
    }

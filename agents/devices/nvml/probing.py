"""Finds out what a GPU is and supports by trying each read once."""

from __future__ import annotations

from typing import Any

import pynvml

from agents.devices.nvml.binding import NvmlSlot
from agents.devices.nvml.reading import GIB, clock_reasons, ecc_uncorrected
from agents.devices.nvml.troubles import read_if_reported
from agents.seams.device import Ability, GpuDevice

VOLTA = (7, 0)  # the first architecture with lockable clocks and limits per MPS client
OF_THE_WHOLE_GPU = (
    Ability.READ_POWER, Ability.READ_ENERGY, Ability.LOCK_CLOCKS, Ability.CAP_POWER, Ability.COMPUTE_MODE,
)  # fmt: skip
CORES_PER_SM = {(7, 0): 64, (7, 2): 64, (7, 5): 64, (8, 0): 64}  # 128 in all later ones


def probe_gpu(slot: NvmlSlot, has_mps: bool) -> GpuDevice:
    """Returns the GPU or MIG device of a slot; raises NVMLError when it is gone.

    MIG devices of a GPU share its clock, power and compute mode, so none of them sets or measures these.
    """
    handle, whole, is_part = slot.handle, slot.whole_handle, bool(slot.gpu_uuid)
    capability = read_if_reported(pynvml.nvmlDeviceGetCudaComputeCapability, whole) or (0, 0)
    clocks = () if is_part else _clocks_mhz(handle)
    constraints = read_if_reported(pynvml.nvmlDeviceGetPowerManagementLimitConstraints, handle) or [0, 0]
    limit = read_if_reported(pynvml.nvmlDeviceGetPowerManagementLimit, handle)
    events = read_if_reported(pynvml.nvmlDeviceGetSupportedEventTypes, whole) or 0
    since_volta = tuple(capability) >= VOLTA
    tried = {
        Ability.READ_POWER: read_if_reported(pynvml.nvmlDeviceGetPowerUsage, handle) is not None,
        Ability.READ_ENERGY: read_if_reported(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle) is not None,
        Ability.READ_UTILIZATION: read_if_reported(pynvml.nvmlDeviceGetUtilizationRates, handle) is not None,
        Ability.READ_ECC: ecc_uncorrected(handle) is not None,
        Ability.LOCK_CLOCKS: since_volta and bool(clocks) and clock_reasons(handle) is not None,
        Ability.CAP_POWER: limit is not None and 0 < constraints[0] < constraints[1],
        Ability.COMPUTE_MODE: read_if_reported(pynvml.nvmlDeviceGetComputeMode, handle) is not None,
        Ability.EVENTS: bool(events & pynvml.nvmlEventTypeXidCriticalError),
        Ability.MPS: since_volta and has_mps,
    }
    if is_part:
        tried |= dict.fromkeys(OF_THE_WHOLE_GPU, False)
        constraints = [0, 0]
    return GpuDevice(
        index=slot.index,
        uuid=slot.uuid,
        name=str(read_if_reported(pynvml.nvmlDeviceGetName, handle) or ""),
        pci=_pci(whole),
        memory_gib=pynvml.nvmlDeviceGetMemoryInfo(handle).total / GIB,
        sm_count=_sm_count(handle, capability),
        clocks_mhz=clocks,
        power_min_w=constraints[0] / 1000,
        power_max_w=constraints[1] / 1000,
        power_default_w=0.0 if is_part else _default_limit_w(handle),
        abilities=frozenset(ability for ability, works in tried.items() if works),
        part_of=slot.gpu_uuid,
        mig=_read_instance(handle) if is_part else "",
        serial=str(read_if_reported(pynvml.nvmlDeviceGetSerial, whole) or ""),
    )


def _default_limit_w(handle: Any) -> float:
    return (read_if_reported(pynvml.nvmlDeviceGetPowerManagementDefaultLimit, handle) or 0) / 1000


def _clocks_mhz(handle: Any) -> tuple[int, ...]:
    """Returns the SM clocks of the highest memory clock, whose list is complete."""
    memory = read_if_reported(pynvml.nvmlDeviceGetSupportedMemoryClocks, handle)
    if not memory:
        return ()
    return tuple(sorted(set(read_if_reported(pynvml.nvmlDeviceGetSupportedGraphicsClocks, handle, max(memory)) or ())))


def _pci(handle: Any) -> str:
    info = read_if_reported(pynvml.nvmlDeviceGetPciInfo, handle)
    if info is None:
        return ""
    return str(info.busId.decode(errors="replace") if isinstance(info.busId, bytes) else info.busId)


def _read_instance(handle: Any) -> str:
    """Returns the numbers of a MIG device that stay the same while others of its GPU are created and destroyed."""
    gpu_instance = read_if_reported(pynvml.nvmlDeviceGetGpuInstanceId, handle)
    compute_instance = read_if_reported(pynvml.nvmlDeviceGetComputeInstanceId, handle)
    return "" if gpu_instance is None or compute_instance is None else f"{gpu_instance}.{compute_instance}"


def _sm_count(handle: Any, capability: tuple[int, int]) -> int:
    """Returns the SM count: NVML reports it for GPUs that can be partitioned; for others the core count implies it."""
    attributes = read_if_reported(pynvml.nvmlDeviceGetAttributes, handle)
    if attributes is not None and attributes.multiprocessorCount:
        return int(attributes.multiprocessorCount)
    cores = read_if_reported(pynvml.nvmlDeviceGetNumGpuCores, handle)
    return int(cores // CORES_PER_SM.get((capability[0], capability[1]), 128)) if cores else 0

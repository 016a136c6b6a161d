"""Checks what can be read from this node's GPUs, and what can be set on them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agents.contract.installs import say_install
from agents.devices.nvml.writer import DEFAULT_MODE, EXCLUSIVE_PROCESS_MODE
from agents.devices.privileged.client import Privileged
from agents.devices.privileged.setup import SOCKET
from agents.run.doctor.findings import DoctorFinding, fail, ok, warn
from agents.seams.device import Ability, DeviceError, GpuDevice, Trouble

WITHOUT = {
    Ability.READ_POWER: "power cannot be measured, so the agent cannot enforce a power cap",
    Ability.READ_ENERGY: "energy is estimated from power readings",
    Ability.READ_UTILIZATION: "utilization cannot be reported",
    Ability.EVENTS: "critical errors (XIDs) are noticed only by their effects",
    Ability.LOCK_CLOCKS: "clocks cannot be set: power is limited by batch sizes alone",
    Ability.CAP_POWER: "the board's own power limit cannot be set",
    Ability.COMPUTE_MODE: "a process that avoids MPS cannot be kept off the GPU",
    Ability.MPS: "SM and memory shares cannot be enforced",
}  # READ_ECC is left out: many boards have no ECC, which is no fault
NEEDED = frozenset({Ability.MPS})
DEADLINE_SECONDS = 2.0  # of each call


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """The driver's report about this machine."""

    driver_version: str
    gpus: tuple[GpuDevice, ...]
    troubles: tuple[DeviceError, ...]  # of GPUs that are present and do not answer
    nameless: int  # GPUs that do not even report their UUID
    modes: Mapping[str, int]
    holders: Mapping[str, str]  # by UUID, in words: who has it to itself, outside MPS; empty: nobody

    @property
    def count(self) -> int:
        return len(self.gpus) + len(self.troubles) + self.nameless


def ask_driver(has_mps: bool) -> DriverFacts:
    """Asks the driver once; raises DeviceError if there is none."""
    from agents.devices.nvml.binding import Binding
    from agents.devices.nvml.probing import probe_gpu
    from agents.devices.nvml.reading import describe_holder

    binding = Binding(deadline_seconds=DEADLINE_SECONDS)
    try:
        binding.enumerate()
        answers = binding.together(lambda slot: probe_gpu(slot, has_mps))
        modes: dict[str, int] = {}
        holders: dict[str, str] = {}
        for uuid in answers:
            try:
                modes[uuid] = int(binding.call(uuid, "read its compute mode", binding.nvml.nvmlDeviceGetComputeMode))
                holders[uuid] = binding.call(uuid, "look who holds it", describe_holder)
            except DeviceError:
                continue
        gpus = [answer for answer in answers.values() if isinstance(answer, GpuDevice)]
        troubles = tuple(answer for answer in answers.values() if isinstance(answer, DeviceError))
        in_order = tuple(sorted(gpus, key=lambda gpu: gpu.index))
        return DriverFacts(binding.driver_version(), in_order, troubles, binding.silent, modes, holders)
    finally:
        binding.close()


def no_driver(error: DeviceError) -> DoctorFinding:
    """Returns the finding that NVML cannot be used, with advice by cause."""
    text = f"NVML cannot be used: {error.what}"
    if error.trouble is Trouble.NO_PERMISSION:
        return fail("driver", text, "Let this user open /dev/nvidiactl and /dev/nvidia0 (in a container: --gpus all).")
    if error.trouble is Trouble.TIMEOUT:
        return fail("driver", text, "A GPU hangs; look for XIDs in dmesg. Only a reset or a reboot helps.")
    if not Path("/proc/driver/nvidia/version").exists():
        advice = "Install NVIDIA's driver, or run this where the GPUs are visible (in a container: --gpus all)."
        return fail("driver", text, advice)
    advice = "The kernel module is loaded, but its library is missing or has another version: reboot after an upgrade."
    return fail("driver", text, advice)


def describe_gpus(facts: DriverFacts) -> Iterator[DoctorFinding]:
    """Yields the driver's finding, and each GPU's with the abilities that it lacks."""
    yield ok("driver", f"version {facts.driver_version}, {facts.count} GPUs")
    advice = "Only this GPU is affected; look for XIDs in dmesg. A reset or a reboot may help."
    for error in facts.troubles:
        yield fail("gpu", str(error), advice)
    if facts.nameless:
        yield fail(
            "gpu", f"{facts.nameless} of {facts.count} GPUs are lost or hang: they do not report their UUIDs", advice
        )
    for gpu in facts.gpus:
        name = f"gpu {gpu.index}"
        text = f"{gpu.name}, {gpu.memory_gib:.0f} GiB, {gpu.sm_count} SMs, {gpu.uuid}"
        lacks = [ability for ability in WITHOUT if ability not in gpu.abilities]
        if gpu.part_of:
            text += f", a MIG device of {gpu.part_of}, whose clock and power all its devices share"
            lacks = [ability for ability in lacks if ability in NEEDED]
        if not lacks:
            yield ok(name, text)
            continue
        consequences = "; ".join(WITHOUT[ability] for ability in lacks)
        if NEEDED & set(lacks):
            advice = "Shares need a GPU of the Volta generation or newer and the MPS control program."
            yield fail(name, f"{text}: {consequences}", advice)
        else:
            advice = "The device or its driver does not support this; there is nothing to do."
            yield warn(name, f"{text}: {consequences}", advice)


def compute_modes(facts: DriverFacts, folder: Path) -> Iterator[DoctorFinding]:
    """Checks compute modes: in EXCLUSIVE_PROCESS a process that avoids MPS cannot open the device at all."""
    from agents.devices.nvml.reading import UNLISTED

    changed = _find_changed(folder / "originals.json")
    for gpu in facts.gpus:
        mode, name = facts.modes.get(gpu.uuid), f"compute mode {gpu.index}"
        held, is_own = facts.holders.get(gpu.uuid, ""), gpu.uuid in changed
        if held and not (held == UNLISTED and is_own):
            advice = "Stop that process, or keep this GPU out of the fleet."
            yield fail(name, f"{held}: nothing is started on it", advice)
        elif mode == EXCLUSIVE_PROCESS_MODE and not is_own:
            advice = f"See who needs it, or give it back: nvidia-smi -i {gpu.index} -c DEFAULT"
            yield warn(name, "exclusive, and this agent has no record of making it so; nobody holds it now", advice)
        elif mode == EXCLUSIVE_PROCESS_MODE:
            yield ok(name, "exclusive: only the MPS server can open the device")
        elif mode == DEFAULT_MODE:
            yield ok(name, "default: the agent makes it exclusive before it starts anything")
        elif mode is not None:
            advice = f"Allow compute on it: nvidia-smi -i {gpu.index} -c DEFAULT"
            yield fail(name, f"mode {mode}: the device refuses all compute work", advice)


def _find_changed(path: Path) -> frozenset[str]:
    """Returns the GPUs whose compute mode this agent has changed; none if its record cannot be read."""
    from agents.devices.nvml.originals import Originals

    try:
        originals = Originals(path)
    except (OSError, msgspec.MsgspecError):
        return frozenset()
    return frozenset(uuid for uuid in originals.changed() if originals.of(uuid).compute_mode is not None)


def check_settable(helper: Path | None) -> Iterator[DoctorFinding]:
    """Checks that clocks, power limits and compute modes can be set: through the root helper, or as root."""
    what = "clocks, power limits and compute modes"
    if helper is None and os.geteuid() == 0:
        advice = "Run the agent as its own user, with gpuwright-privileged.service and --helper (docs/agent.md)."
        yield warn("root helper", f"not configured; running as root, so {what} can be set", advice)
        return
    if helper is None:
        advice = f"Start gpuwright-privileged.service and pass its socket: --helper {SOCKET} (docs/agent.md)."
        yield fail("root helper", f"not configured, and this user is not root: {what} cannot be set", advice)
        return
    try:
        version = Privileged(helper, seconds=3.0).hello().version
        yield ok("root helper", f"answers at {helper} (version {version}): {what} can be set")
    except DeviceError as error:
        advice = f"systemctl start gpuwright-privileged; it must serve this user: --user {_user()} (docs/agent.md)."
        yield fail("root helper", f"{error.what}: {what} cannot be set", advice)


def no_gpus(facts: DriverFacts) -> DoctorFinding:
    text = f"driver {facts.driver_version} is loaded but finds no GPU"
    advice = "Run this where the GPUs are visible (in a container: --gpus all); check lspci and dmesg."
    return fail("driver", text, advice)


def no_binding() -> DoctorFinding:
    return fail("driver", "the NVML binding is not installed", say_install("agent"))


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())

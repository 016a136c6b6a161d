"""What can be asked of the GPUs of this node, and what can be set on them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from agents.devices.nvml.writer import DEFAULT_MODE, EXCLUSIVE_PROCESS_MODE
from agents.devices.privileged.client import Privileged
from agents.devices.privileged.setup import SOCKET
from agents.run.doctor.findings import DoctorFinding, fail, ok, warn
from agents.seams.device import Ability, DeviceError, GpuDevice, Trouble

WITHOUT = {
    Ability.READ_POWER: "power is not measured, so no cap can be kept by it",
    Ability.READ_ENERGY: "energy is added up from power readings",
    Ability.READ_UTILIZATION: "utilization is not reported",
    Ability.EVENTS: "critical errors (XIDs) are noticed by their effects only",
    Ability.LOCK_CLOCKS: "clocks cannot be set: power is kept by batch sizes alone",
    Ability.CAP_POWER: "the board's own power limit stays as it is",
    Ability.COMPUTE_MODE: "nothing stops a process that avoids MPS",
    Ability.MPS: "SM and memory shares cannot be enforced",
}  # READ_ECC: many boards have no ECC, and nothing is missing then
NEEDED = frozenset({Ability.MPS})
DEADLINE_SECONDS = 2.0  # of each call


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """What the driver says of this machine."""

    driver_version: str
    gpus: tuple[GpuDevice, ...]
    troubles: tuple[DeviceError, ...]  # of GPUs that are there and do not answer
    nameless: int  # those that do not even say which they are
    modes: Mapping[str, int]

    @property
    def count(self) -> int:
        return len(self.gpus) + len(self.troubles) + self.nameless


def look(has_mps: bool) -> DriverFacts:
    """Ask the driver once; DeviceError where there is none."""
    from agents.devices.nvml.binding import Binding
    from agents.devices.nvml.probing import found

    binding = Binding(deadline_seconds=DEADLINE_SECONDS)
    try:
        named = binding.enumerate()
        nameless = binding.nvml.nvmlDeviceGetCount() - len(named)
        answers = binding.together(lambda slot: found(slot.index, slot.uuid, slot.handle, has_mps))
        modes: dict[str, int] = {}
        for uuid in answers:
            try:
                modes[uuid] = int(binding.call(uuid, "read its compute mode", binding.nvml.nvmlDeviceGetComputeMode))
            except DeviceError:
                continue
        gpus = tuple(sorted((a for a in answers.values() if isinstance(a, GpuDevice)), key=lambda gpu: gpu.index))
        troubles = tuple(answer for answer in answers.values() if isinstance(answer, DeviceError))
        return DriverFacts(binding.driver_version(), gpus, troubles, nameless, modes)
    finally:
        binding.close()


def no_driver(error: DeviceError) -> DoctorFinding:
    """Why there is nothing to look at, and what would change that."""
    text = f"NVML cannot be used: {error.what}"
    if error.trouble is Trouble.NO_PERMISSION:
        return fail("driver", text, "Let this user open /dev/nvidiactl and /dev/nvidia0 (in a container: --gpus all).")
    if error.trouble is Trouble.TIMEOUT:
        return fail("driver", text, "A GPU hangs; see dmesg for XIDs. Nothing but a reset or a reboot helps.")
    if not Path("/proc/driver/nvidia/version").exists():
        advice = "Install NVIDIA's driver, or run this where the GPUs are (in a container: --gpus all)."
        return fail("driver", text, advice)
    advice = "The kernel module is loaded and its library is not there, or of another version: reboot after an upgrade."
    return fail("driver", text, advice)


def described(seen: DriverFacts) -> Iterator[DoctorFinding]:
    """The driver, and each GPU with what it cannot do."""
    yield ok("driver", f"version {seen.driver_version}, {seen.count} GPUs")
    advice = "Only this GPU is affected; see dmesg for XIDs. A reset or a reboot may help."
    for error in seen.troubles:
        yield fail("gpu", str(error), advice)
    if seen.nameless:
        yield fail(
            "gpu", f"{seen.nameless} of {seen.count} GPUs are lost or hang: they do not say who they are", advice
        )
    for gpu in seen.gpus:
        name = f"gpu {gpu.index}"
        text = f"{gpu.name}, {gpu.memory_gib:.0f} GiB, {gpu.sm_count} SMs, {gpu.uuid}"
        lacks = [ability for ability in WITHOUT if ability not in gpu.abilities]
        if not lacks:
            yield ok(name, text)
            continue
        consequences = "; ".join(WITHOUT[ability] for ability in lacks)
        if NEEDED & set(lacks):
            yield fail(name, f"{text}: {consequences}", "Volta or newer and the MPS control program are needed.")
        else:
            yield warn(name, f"{text}: {consequences}", "The device or its driver does not offer it; nothing to do.")


def compute_modes(seen: DriverFacts) -> Iterator[DoctorFinding]:
    """EXCLUSIVE_PROCESS is the backstop: a process that avoids MPS cannot open the device at all."""
    for gpu in seen.gpus:
        mode, name = seen.modes.get(gpu.uuid), f"compute mode {gpu.index}"
        if mode == EXCLUSIVE_PROCESS_MODE:
            yield ok(name, "exclusive: only the MPS server opens the device")
        elif mode == DEFAULT_MODE:
            yield ok(name, "default: the agent makes it exclusive before anything is started")
        elif mode is not None:
            advice = f"Allow compute on it: nvidia-smi -i {gpu.index} -c DEFAULT"
            yield fail(name, f"mode {mode}: the device refuses to compute", advice)


def settable(helper: Path | None) -> Iterator[DoctorFinding]:
    """Clocks, power limits and compute modes are root's to set: through the root helper, or as root."""
    what = "clocks, power limits and compute modes"
    if helper is None and os.geteuid() == 0:
        advice = "Run the agent as a user of its own, with gpuwright-privileged.service and --helper (docs/agent.md)."
        yield warn("root helper", f"none is named, and this is root: {what} can be set", advice)
        return
    if helper is None:
        advice = f"Start gpuwright-privileged.service and name its socket: --helper {SOCKET} (docs/agent.md)."
        yield fail("root helper", f"none is named, and this is not root: {what} cannot be set", advice)
        return
    try:
        version = Privileged(helper, seconds=3.0).hello().version
        yield ok("root helper", f"answers at {helper} (version {version}): {what} can be set")
    except DeviceError as error:
        advice = f"systemctl start gpuwright-privileged; it must name this user: --user {_user()} (docs/agent.md)."
        yield fail("root helper", f"{error.what}: {what} cannot be set", advice)


def no_gpus(seen: DriverFacts) -> DoctorFinding:
    text = f"driver {seen.driver_version} is there and knows no GPU"
    return fail("driver", text, "Run this where the GPUs are (in a container: --gpus all); see lspci and dmesg.")


def no_binding() -> DoctorFinding:
    return fail("driver", "the NVML binding is not installed", "pip install 'gpuwright[agent]'")


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())

"""Limits of CPU time: what is written into cgroups of both versions, what is read back, and where it is refused."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from agents.devices.cores.device import CoresDevice, usable_cores
from agents.devices.cores.shares import CoreShares
from agents.host.core_share import threads_of
from agents.run.opening import AgentOptions, open_node
from agents.runtime import Launch, LaunchError
from agents.runtime.core_groups import CoreGroups
from agents.runtime.core_limits import NoCoreLimits, find_limits, is_in_force, most_bytes, quota_of
from agents.runtime.process import ProcessRuntime
from agents.seams.device import DeviceError, MpsState
from agents.templates import Filled
from tests.support.needs import need_core_limits
from tests.support.patience import until


def delegated(folder: Path, controllers: str = "cpu memory pids") -> Path:
    """A folder with the files of a delegated cgroup of version 2. The kernel's own files in new groups are missing."""
    folder.mkdir()
    (folder / "cgroup.controllers").write_text(controllers)
    (folder / "cgroup.subtree_control").write_text(controllers)
    return folder


@pytest.mark.parametrize(
    ("cores", "quota", "period"),
    [(1.0, 10_000, 10_000), (0.3, 3_000, 10_000), (2.4, 24_000, 10_000), (0.01, 1_000, 100_000)],
)
def test_a_share_becomes_a_quota_that_the_kernel_takes(cores: float, quota: int, period: int) -> None:
    assert quota_of(cores) == (quota, period)
    assert is_in_force(quota / period, cores)


def test_a_larger_limit_than_requested_is_not_in_force() -> None:
    assert not is_in_force(None, 0.5) and not is_in_force(0.6, 0.5)
    with pytest.raises(ValueError, match="no share"):
        quota_of(0.0)


def test_version_2_gets_cpu_max_and_memory_max(tmp_path: Path) -> None:
    root = delegated(tmp_path / "unit")
    groups = CoreGroups(tmp_path / "copies", find_limits(root))
    tracked, limiting = groups.make("digits-1", {"GPUWRIGHT_CORES": "0.6", "GPUWRIGHT_MEMORY_GIB": "2"})
    group = Path(limiting)
    assert tracked == "" and group.is_relative_to(root)
    assert (group / "cpu.max").read_text() == "6000 10000"
    assert not (group / "memory.max").exists(), "the group above does not pass the memory controller on"
    (group.parent / "cgroup.subtree_control").write_text("cpu memory")
    groups.make("digits-1", {"GPUWRIGHT_CORES": "0.6", "GPUWRIGHT_MEMORY_GIB": "2"})
    assert (group / "memory.max").read_text() == str(most_bytes(2.0)) == str(int(2.5625 * 2**30))


def test_a_folder_without_the_cpu_controller_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NoCoreLimits, match="Delegate=cpu memory") as refused:
        find_limits(delegated(tmp_path / "unit", "pids"))
    assert str(tmp_path / "unit") in str(refused.value)


def test_a_machine_without_cgroups_is_refused_with_what_to_do(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text("22 1 0:21 / /proc rw - proc proc rw\n")
    with pytest.raises(NoCoreLimits, match="unified_cgroup_hierarchy=1"):
        find_limits(mountinfo=str(mounts))


def test_a_group_that_may_not_be_made_is_refused_with_what_to_do(tmp_path: Path) -> None:
    root = delegated(tmp_path / "unit")
    (root / "gpuwright-try").write_text("no folder can be made here")
    with pytest.raises(NoCoreLimits, match="run the agent as root"):
        find_limits(root)


def test_an_agent_on_cores_opens_one_device_and_refuses_containers(tmp_path: Path) -> None:
    root = delegated(tmp_path / "unit")
    options = AgentOptions(tmp_path / "agent", device="cores", cores=1, cgroup=root)
    (gpu,) = open_node(options).drivers.device.gpus()
    assert (gpu.sm_count, gpu.name) == (1, "CPU, 1 cores") and gpu.memory_gib > 0
    with pytest.raises(ValueError, match="leave out --runtime docker"):
        open_node(AgentOptions(tmp_path / "agent", device="cores", cgroup=root, runtime="docker"))
    with pytest.raises(ValueError, match=f"may use 1 to {usable_cores()} cores"):
        open_node(AgentOptions(tmp_path / "agent", device="cores", cores=usable_cores() + 1, cgroup=root))


@pytest.mark.slow
def test_the_kernel_holds_a_copy_to_its_share(tmp_path: Path) -> None:
    need_core_limits()
    groups = CoreGroups((tmp_path / "copies").resolve(), find_limits())
    runtime = ProcessRuntime(tmp_path / "copies", groups)
    device, shares = CoresDevice(groups, 1, tmp_path), CoreShares(groups, 1)
    (gpu,) = device.gpus()
    assert shares.state(gpu.uuid) is MpsState.IDLE
    spinning = Filled("spin", ("/bin/sh", "-c", "while :; do :; done"), {})
    running = runtime.start(Launch("spin-1", gpu.uuid, spinning, 0, shares.environment(gpu.uuid, 20.0, 1.0)))
    try:
        assert running.pid in shares.clients(gpu.uuid)
        assert [found.pid for found in device.processes(gpu.uuid)] == [running.pid]
        (group,) = groups.root.glob("*.copy")
        until(lambda: _kernel_counts(group)["nr_throttled"] >= 150, "the kernel holds it back")
        spent = _cpu_seconds(running.pid)
        given = _kernel_counts(group)["nr_periods"] * quota_of(0.2)[1] / 1e6
        assert spent <= 0.25 * given, "one fifth of a core, and a tick of the clock"
    finally:
        runtime.end(running, force=True)
    while runtime.alive(running):
        time.sleep(0.02)
    runtime.tidy(())
    assert shares.state(gpu.uuid) is MpsState.IDLE and not list(groups.root.glob("*"))


def test_a_command_beside_a_copy_shares_its_limit(tmp_path: Path) -> None:
    need_core_limits()
    groups = CoreGroups((tmp_path / "copies").resolve(), find_limits())
    runtime = ProcessRuntime(tmp_path / "copies", groups)
    (gpu,) = CoresDevice(groups, 1, tmp_path).gpus()
    told = tmp_path / "group"
    saves = ("/bin/sh", "-c", f"cat /proc/self/cgroup > {told}")
    filled = Filled("train", ("/bin/sleep", "600"), {}, checkpoint_command=saves)
    shares = CoreShares(groups, 1)
    running = runtime.start(Launch("train-1", gpu.uuid, filled, 0, shares.environment(gpu.uuid, 20.0, 1.0)))
    try:
        assert runtime.run_beside(running, filled, 30)
        assert told.read_text() == Path(f"/proc/{running.pid}/cgroup").read_text(), "both are in the same groups"
    finally:
        runtime.end(running, force=True)
    while runtime.alive(running):
        time.sleep(0.02)
    runtime.tidy(())


def test_a_copy_without_a_limit_does_not_start(tmp_path: Path) -> None:
    groups = CoreGroups(tmp_path / "copies", find_limits(delegated(tmp_path / "unit")))
    runtime = ProcessRuntime(tmp_path / "copies", groups)
    with pytest.raises(LaunchError):
        runtime.start(Launch("spin-1", "", Filled("spin", ("/bin/true",), {}), 0))


def test_another_device_is_lost_and_cores_have_no_settings(tmp_path: Path) -> None:
    device = CoresDevice(CoreGroups(tmp_path, find_limits(delegated(tmp_path / "unit"))), 1, tmp_path)
    (gpu,) = device.gpus()
    assert (device.read(gpu.uuid).memory_used_gib or 0) > 0
    for call in (lambda: device.read("GPU-1"), lambda: device.lock_clock(gpu.uuid, 1000)):
        with pytest.raises(DeviceError):
            call()


def test_threads_follow_the_share() -> None:
    assert [threads_of({"GPUWRIGHT_CORES": cores}) for cores in ("0.2", "1", "1.1", "nonsense")] == [1, 1, 2, 0]
    assert threads_of({}) == 0


def _kernel_counts(group: Path) -> dict[str, int]:
    """Returns how often the kernel gave the group its quota, and how often that was used up: no clock of ours."""
    return {name: int(count) for name, count in map(str.split, (group / "cpu.stat").read_text().splitlines())}


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100

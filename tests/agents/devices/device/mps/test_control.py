"""MPS daemons that die, hang, break off, or reply with garbage."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agents.devices.mps import MpsControl, processes
from agents.devices.mps.daemon_reader import keeps_waiting
from agents.devices.mps.program import has_newer_protocol
from agents.devices.simulated.client import SimulatedClient, attach
from agents.host.plain_files import open_empty, read_start
from agents.seams.device import DeviceError, MpsState, Trouble
from tests.agents.devices.device.checks import trouble_of
from tests.agents.devices.device.mps.conftest import UUID
from tests.support import fake_mps
from tests.support.nvml_stub import needs_gcc
from tests.support.patience import patience, until

pytestmark = needs_gcc
COMMANDS = ("get_server_list", "get_server_status", "get_client_list", "get_default_active_thread_percentage")
Plant = Callable[[Path, Path], object]
ANSWERS = {("get_server_list", ""), ("get_client_list", ""), ("get_server_status", "ACTIVE\\n")}


def client_of(mps: MpsControl, ends: list[str] | None = None) -> SimulatedClient:
    """This process becomes a client."""
    ended = [] if ends is None else ends
    client = attach(mps.environment(UUID, 30, 2.0), 0.5, failed=ended.append)
    assert client is not None
    return client


@pytest.fixture
def client(mps: MpsControl) -> Iterator[SimulatedClient]:
    mps.start(UUID)
    with closing(client_of(mps)) as attached:
        yield attached


def test_the_daemon_sees_its_gpu_alone_and_no_limit_of_the_agents_own(
    mps: MpsControl, pipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "10")
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "none")
    mps.start(UUID)
    daemon = processes.daemon_pid(pipe)
    assert daemon is not None
    environment = Path(f"/proc/{daemon}/environ").read_text().split("\0")
    assert f"CUDA_VISIBLE_DEVICES={UUID}" in environment
    assert not [line for line in environment if line.startswith(("CUDA_MPS_ACTIVE", "NVIDIA_"))]
    assert os.getsid(daemon) != os.getsid(0), "it outlives the agent's terminal"


def test_a_daemon_outlives_the_control_that_started_it(mps: MpsControl, client: SimulatedClient, root: Path) -> None:
    second = MpsControl(root, fake_mps.program())
    assert second.clients(UUID) == {os.getpid()}
    second.start(UUID)
    assert second.clients(UUID) == {os.getpid()}


@pytest.mark.slow
def test_a_killed_daemons_server_and_files_do_not_keep_the_next_one_away(
    mps: MpsControl, client: SimulatedClient, pipe: Path
) -> None:
    daemon = processes.daemon_pid(pipe)
    assert daemon is not None
    os.kill(daemon, signal.SIGKILL)
    until(lambda: mps.state(UUID) is MpsState.DOWN, "the daemon is dead")
    assert processes.all_of(pipe), "its server is not"
    mps.start(UUID)
    assert processes.daemon_pid(pipe) in processes.all_of(pipe)
    until(lambda: mps.clients(UUID) == {os.getpid()}, "the client comes back to the new daemon")


def test_a_server_that_dies_takes_its_clients_along_and_the_daemon_takes_new_ones(mps: MpsControl, pipe: Path) -> None:
    mps.start(UUID)
    ended: list[str] = []
    client_of(mps, ended)
    (server,) = mps.look(UUID).clients
    os.kill(server, signal.SIGKILL)
    until(lambda: mps.state(UUID) is MpsState.IDLE, "the server is gone")
    until(lambda: bool(ended), "the client heard of it")
    with closing(client_of(mps)):
        until(lambda: mps.clients(UUID) == {os.getpid()}, "there is a server again")


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_no_answer_is_neither_no_client_nor_one(
    mps: MpsControl, client: SimulatedClient, pipe: Path, command: str
) -> None:
    assert mps.clients(UUID) == {os.getpid()}
    for reply in ("nonsense\\n", "", "123", "-5\\n", "ACTIVE\\n", "99999999\\n"):
        if (command, reply) in ANSWERS:
            continue
        fake_mps.switch(pipe, f"reply.{command}", reply)
        assert trouble_of(lambda: mps.clients(UUID)) is Trouble.GARBLED, reply
        assert trouble_of(lambda: mps.state(UUID)) is Trouble.GARBLED, reply
        assert trouble_of(lambda: mps.terminate(UUID, os.getpid())) is Trouble.GARBLED, reply
    fake_mps.switch(pipe, f"reply.{command}", None)
    assert mps.clients(UUID) == {os.getpid()}


def test_a_connection_that_breaks_is_no_answer_and_no_end_of_the_daemon(
    mps: MpsControl, client: SimulatedClient, pipe: Path
) -> None:
    for command in COMMANDS[:3]:
        fake_mps.switch(pipe, f"break.{command}")
        assert trouble_of(lambda: mps.state(UUID)) is Trouble.GARBLED
        assert trouble_of(lambda: mps.start(UUID)) is Trouble.GARBLED
        fake_mps.switch(pipe, f"break.{command}", None)
    assert mps.clients(UUID) == {os.getpid()}


def test_a_termination_that_fails_is_not_called_one(mps: MpsControl, client: SimulatedClient, pipe: Path) -> None:
    for reply, outcome in (("1\\n", False), ("CUDA_ERROR_UNKNOWN\\n", False)):
        fake_mps.switch(pipe, "reply.terminate_client", reply)
        assert mps.terminate(UUID, os.getpid()) is outcome
    for reply in ("", "done\\n", "0\\n0\\n"):
        fake_mps.switch(pipe, "reply.terminate_client", reply)
        assert trouble_of(lambda: mps.terminate(UUID, os.getpid())) is Trouble.GARBLED


def test_a_termination_that_hangs_is_given_up(
    mps: MpsControl, hasty: MpsControl, client: SimulatedClient, pipe: Path
) -> None:
    fake_mps.switch(pipe, "delay.terminate_client", 1.0)
    assert trouble_of(lambda: hasty.terminate(UUID, os.getpid())) is Trouble.TIMEOUT


@pytest.mark.slow
def test_a_hanging_daemon_gets_no_second_one_but_can_be_stopped(
    mps: MpsControl, hasty: MpsControl, client: SimulatedClient, pipe: Path
) -> None:
    fake_mps.switch(pipe, "hang")
    assert trouble_of(lambda: hasty.start(UUID)) is Trouble.TIMEOUT
    assert processes.all_of(pipe)
    hasty.stop(UUID)
    assert processes.all_of(pipe) == []
    fake_mps.switch(pipe, "hang", None)
    assert mps.state(UUID) is MpsState.DOWN
    mps.start(UUID)
    until(lambda: mps.clients(UUID) == {os.getpid()}, "the client comes back")


def test_a_daemon_that_is_stopped_waits_for_no_client_for_ever(
    mps: MpsControl, client: SimulatedClient, pipe: Path
) -> None:
    mps.stop(UUID)
    assert processes.all_of(pipe) == []
    assert mps.state(UUID) is MpsState.DOWN


def test_a_living_daemon_that_is_reported_missing_is_left_alone(
    mps: MpsControl, client: SimulatedClient, pipe: Path
) -> None:
    (pipe / "control").rename(pipe / "elsewhere")
    assert mps.state(UUID) is MpsState.DOWN
    assert trouble_of(lambda: mps.start(UUID)) is Trouble.TIMEOUT
    assert processes.daemon_pid(pipe) is not None


def test_without_the_program_there_is_no_mps(root: Path) -> None:
    mps = MpsControl(root, "/nonexistent/nvidia-cuda-mps-control")
    assert mps.state(UUID) is MpsState.DOWN
    assert trouble_of(lambda: mps.start(UUID)) is Trouble.NOT_SUPPORTED
    mps.stop(UUID)


def test_a_path_too_long_for_a_socket_is_refused_before_anything_is_started(root: Path) -> None:
    mps = MpsControl(root / ("d" * 60), fake_mps.program())
    assert trouble_of(lambda: mps.start(UUID)) is Trouble.DOWN
    assert list(root.iterdir()) == []


def test_a_process_that_took_over_a_daemons_pid_is_not_killed_for_it(mps: MpsControl, pipe: Path) -> None:
    pipe.mkdir(parents=True)
    (pipe / processes.PID_FILE).write_text(str(os.getpid()))
    assert processes.daemon_pid(pipe) is None
    mps.start(UUID)
    assert mps.state(UUID) is MpsState.IDLE


def test_a_server_of_another_user_keeps_our_clients_waiting() -> None:
    assert keeps_waiting(1001, 1000)
    assert keeps_waiting(0, 1000)
    assert not keeps_waiting(1000, 1000)
    assert not keeps_waiting(None, 1000), "it is gone, and nobody waits for it"
    assert not keeps_waiting(1000, 0)


def test_a_daemon_that_does_not_start_says_why(root: Path, tmp_path: Path) -> None:
    program = tmp_path / "nvidia-cuda-mps-control"
    program.write_text("#!/bin/sh\necho no GPU is to be had; exit 1\n")
    program.chmod(0o755)
    with pytest.raises(DeviceError, match="no GPU is to be had") as caught:
        MpsControl(root, str(program)).start(UUID)
    assert caught.value.trouble is Trouble.DOWN


def test_a_daemon_that_starts_and_goes_at_once_is_no_daemon(root: Path, tmp_path: Path) -> None:
    program = tmp_path / "nvidia-cuda-mps-control"
    program.write_text("#!/bin/sh\n[ $# = 1 ] && exit 0\necho Cannot find MPS control daemon process\nexit 1\n")
    program.chmod(0o755)
    mps = MpsControl(root, str(program), start_seconds=0.2)
    assert trouble_of(lambda: mps.start(UUID)) is Trouble.DOWN


@pytest.mark.slow
def test_case_28_links_and_pipes_that_a_container_leaves_in_its_folder_touch_no_file_of_the_agent(
    mps: MpsControl, root: Path, pipe: Path
) -> None:
    journal, outside = root / "journal.jsonl", root / "outside"
    journal.write_text("kept\n")
    outside.mkdir()
    (outside / "kept").write_text("kept\n")
    mps.start(UUID)
    daemon = processes.daemon_pid(pipe)
    assert daemon is not None
    os.kill(daemon, signal.SIGKILL)
    until(lambda: processes.daemon_pid(pipe) is None, "the daemon is gone")
    for name in ("control", processes.PID_FILE, "control_lock"):
        (pipe / name).unlink(missing_ok=True)
    (pipe / "control").symlink_to(journal)
    os.mkfifo(pipe / processes.PID_FILE)
    (pipe / "control_lock").hardlink_to(journal)
    (pipe / "log").symlink_to(outside)
    inside = os.open(pipe, os.O_RDONLY)  # as a container keeps its mount
    mps.start(UUID)
    assert mps.state(UUID) is MpsState.IDLE
    assert os.fstat(inside).st_ino != pipe.stat().st_ino, "the next daemon has a folder of its own"
    os.close(inside)
    assert journal.read_text() == (outside / "kept").read_text() == "kept\n"
    assert [folder.name for folder in root.iterdir() if folder.name.startswith("old-")] == []


@pytest.mark.slow
def test_case_28_folders_nested_too_deeply_to_delete_do_not_keep_the_next_daemon_away(
    mps: MpsControl, root: Path, pipe: Path
) -> None:
    pipe.mkdir(parents=True, exist_ok=True)
    folder = os.open(pipe, os.O_RDONLY)
    for _ in range(sys.getrecursionlimit() + 100):
        os.mkdir("deeper", dir_fd=folder)
        deeper = os.open("deeper", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = deeper
    os.close(folder)
    try:
        mps.start(UUID)
        assert mps.state(UUID) is MpsState.IDLE
    finally:
        fake_mps.kill(pipe)
        subprocess.run(["rm", "-rf", pipe, *root.glob("old-*")], check=True)  # pytest deletes by recursion, too


@pytest.mark.parametrize("plant", [Path.symlink_to, Path.hardlink_to, lambda path, _: os.mkfifo(path)])
def test_case_28_a_start_is_not_written_through_anything_but_a_plain_file(tmp_path: Path, plant: Plant) -> None:
    kept = tmp_path / "credential.json"
    kept.write_text("token")
    plant(tmp_path / "start.txt", kept)
    with pytest.raises(OSError):
        open_empty(tmp_path / "start.txt")
    with pytest.raises(OSError):
        read_start(tmp_path / "start.txt", 10)
    assert kept.read_text() == "token"


def test_a_daemon_may_say_anything_while_it_starts(mps: MpsControl, root: Path, pipe: Path) -> None:
    log = root / "logs" / UUID / "control.log"
    started = threading.Thread(target=lambda: mps.start(UUID))
    started.start()
    until((root / "logs" / UUID / "start.txt").exists, "it was started")
    fake_mps.switch(pipe, "reply.get_server_list", "one moment\\n")
    told = "Replied to get_server_list as ordered"
    until(lambda: not started.is_alive() or (log.exists() and told in log.read_text()), "it says something")
    fake_mps.switch(pipe, "reply.get_server_list", None)
    started.join(patience())
    assert mps.state(UUID) is MpsState.IDLE


def test_a_daemon_in_our_pipe_directory_that_another_started_is_not_taken_over(mps: MpsControl, root: Path) -> None:
    pipe = root / UUID
    pipe.mkdir(mode=0o700)
    around = os.environ | {"CUDA_MPS_PIPE_DIRECTORY": str(pipe), "CUDA_VISIBLE_DEVICES": UUID}
    subprocess.run([fake_mps.program(), "-d"], env=around, check=True)
    until((pipe / processes.PID_FILE).exists, "it runs")
    assert trouble_of(lambda: mps.start(UUID)) is Trouble.FOREIGN
    fake_mps.kill(pipe)
    until(lambda: mps.find_foreign(UUID) == [], "it is gone")
    mps.start(UUID)
    assert mps.state(UUID) is MpsState.IDLE


@pytest.mark.parametrize(
    ("devices", "may"),
    [
        (UUID, True),
        (UUID[:12], True),
        (f"GPU-other, {UUID}", True),
        ("0", True),
        (None, True),
        ("GPU-other", False),
        ("", False),
        ("-1", False),
        ("NoDevFiles", False),
    ],
)
def test_a_process_of_mps_may_use_the_devices_that_it_was_given(devices: str | None, may: bool) -> None:
    assert processes.may_use({} if devices is None else {"CUDA_VISIBLE_DEVICES": devices}, UUID) is may


def test_a_server_of_others_counts_until_it_is_gone(mps: MpsControl) -> None:
    program = fake_mps.folder() / "nvidia-cuda-mps-server"
    server = subprocess.Popen([program, "infinity"], env={"CUDA_VISIBLE_DEVICES": UUID})
    try:
        until(lambda: mps.find_foreign(UUID) == [server.pid], "it is seen")
        assert mps.find_foreign("GPU-other") == []
        assert processes.describe(server.pid) == f"process {server.pid} of user {os.geteuid()}"
        assert trouble_of(lambda: mps.start(UUID)) is Trouble.FOREIGN
        server.kill()
        until(lambda: mps.find_foreign(UUID) == [], "nor does it count before it is reaped")
    finally:
        server.kill()
        server.wait()


@pytest.mark.parametrize(
    ("does", "is_newer"),
    [
        ("echo 'server MODULE, namespace MODULE'", True),
        ("echo 'Cannot find MPS control daemon process'; exit 1", False),
        ("exit 0", False),
        ("echo namespace; exit 1", False),
        ("exec sleep 600", False),
    ],
)
def test_a_program_says_by_its_help_whether_it_has_the_newer_protocol(
    tmp_path: Path, does: str, is_newer: bool
) -> None:
    program = tmp_path / "nvidia-cuda-mps-control"
    program.write_text(f"#!/bin/sh\n[ \"$*\" = '--protocol 3 --help' ] || exit 2\n{does}\n")
    program.chmod(0o755)
    assert has_newer_protocol(str(program), 0.1 if "sleep" in does else 10) is is_newer
    assert not has_newer_protocol(str(tmp_path / "absent"), 1)


def test_a_question_to_a_daemon_is_no_daemon_that_may_use_other_gpus(
    mps: MpsControl, pipe: Path, tmp_path: Path
) -> None:
    mps.start(UUID)
    fake_mps.switch(pipe, "hang")
    asking = threading.Thread(target=lambda: mps.state(UUID))
    running = len(processes.all_of(pipe))
    asking.start()
    until(lambda: len(processes.all_of(pipe)) > running, "it asks")
    assert MpsControl(tmp_path / "others", fake_mps.program()).find_foreign("GPU-other") == []
    fake_mps.switch(pipe, "hang", None)
    asking.join(patience())

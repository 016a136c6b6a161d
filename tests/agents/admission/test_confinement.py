"""A user's own command is kept apart from its node as far as a process can be; a container as far as the Engine can."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agents.admission.filling import fill_own
from agents.admission.reading import AllowList
from agents.runtime import Launch
from agents.runtime.process import ProcessRuntime
from agents.templates import Confined, Filled
from agents.templates.filling import Builtin
from tests.agents.admission.lists import COMMAND, CONTAINER, own, read_list
from tests.support.needs import need_module
from tests.support.patience import until

PYTHON = Path("/usr/bin/python3")  # which every user can run
USER = 20001
PROGRAM = """
import ctypes, json, os, threading
libc = ctypes.CDLL(None, use_errno=True)
def errno_of(name, *words):
    return ctypes.get_errno() if getattr(libc, name)(*words) == -1 else 0
threading.Thread(target=print).start()
found = {
    "uid": os.getuid(), "gid": os.getgid(), "groups": os.getgroups(),
    "unshare": errno_of("unshare", 0x10000000), "mount": errno_of("mount", b"none", b"/mnt", b"tmpfs", 0, 0),
    "ptrace": errno_of("ptrace", 0, 0, 0, 0),
    "memory": [errno_of(f"process_vm_{way}v", os.getpid(), None, 0, None, 0, 0) for way in ("read", "write")],
    "secret": os.environ["API_KEY"], "child": os.spawnlp(os.P_WAIT, "true", "true"),
    "status": [line.split()[1] for line in open("/proc/self/status") if line.startswith(("NoNewPrivs", "Seccomp:"))],
}
print("found " + json.dumps(found), flush=True)
import time; time.sleep(600)
"""


@pytest.mark.needs_root("to start a copy as another user")
@pytest.mark.needs(PYTHON, "python3")
def test_a_command_runs_as_its_own_user_without_new_privileges_and_under_a_filter(tmp_path: Path) -> None:
    runtime = ProcessRuntime(tmp_path / "copies", cgroups=False, users=(USER,))
    confined = Confined(user=USER, secrets={"API_KEY": "swordfish"})
    running = runtime.start(Launch("own-1", "", Filled("own", (str(PYTHON), "-c", PROGRAM), confined=confined), 8000))
    try:
        until(lambda: "found " in runtime.log_tail("own-1"), "it looked around")
        found: dict[str, Any] = json.loads(runtime.log_tail("own-1").partition("found ")[2].splitlines()[0])
        assert (found["uid"], found["gid"], found["groups"]) == (USER, USER, [])
        assert (found["unshare"], found["mount"], found["ptrace"]) == (1, 1, 1), "EPERM"
        assert found["memory"] == [1, 1], "neither read nor written in another process, as tracing would"
        assert found["status"] == ["1", "2"], "no new privileges; a filter is in force"
        assert (found["secret"], found["child"]) == ("swordfish", 0), "it works all the same"
        again = ProcessRuntime(tmp_path / "copies", cgroups=False, users=(USER,))
        assert [copy.pid for copy in again.find()] == [running.pid], "the next agent finds it"
    finally:
        runtime.end(running, force=True)
        until(lambda: runtime.find() == (), "it has ended")
        runtime.tidy(())


def test_a_secret_is_shown_nowhere(tmp_path: Path) -> None:
    filled = fill_own(read_list(tmp_path), own(COMMAND), Builtin("c", "", port=7001), "process")
    assert isinstance(filled, Filled)
    assert filled.confined is not None
    assert filled.confined.secrets == {"API_KEY": "swordfish"}
    assert "swordfish" not in repr(filled)
    assert filled.argv[-3:] == ("127.0.0.1", "7001", "--workers=2")
    (tmp_path / "shop-key").chmod(0o644)
    refused = fill_own(read_list(tmp_path), own(COMMAND), Builtin("c", ""), "process")
    assert "readable by everyone" in str(refused)


def container_config(found: AllowList, pipe: str = "", mounted: Sequence[str] = ()) -> dict[str, Any]:
    need_module("docker", "docker")
    from docker import APIClient

    from agents.runtime.docker import DockerRuntime

    filled = fill_own(found, own(CONTAINER), Builtin("c", "", port=7001), "docker")
    assert isinstance(filled, Filled)
    limits = {"CUDA_MPS_PIPE_DIRECTORY": pipe} if pipe else {}
    launch = Launch("c", "", filled, 7001, limits, (*filled.folders, *mounted))
    runtime = DockerRuntime(Path("/nowhere"), user="20001:20001", gpus=False)
    config: dict[str, Any] = runtime._config(APIClient(version="1.41"), launch)
    return config


def test_a_container_gets_no_more_than_the_list_says(tmp_path: Path) -> None:
    config = container_config(read_list(tmp_path))
    host = config["HostConfig"]
    assert "Entrypoint" not in config or config["Entrypoint"] is None
    assert config["Cmd"] == ["--model", "small/v1"]
    assert config["User"] == "20001:20001"
    assert host["Binds"] == [f"{tmp_path / 'models'}:/volumes/models:ro"]
    assert (host["NetworkMode"], host["IpcMode"]) == ("gpuwright-own", "private")
    pipe = str(tmp_path / "pipe")
    assert container_config(read_list(tmp_path), pipe, [pipe])["HostConfig"]["IpcMode"] == "host"
    assert container_config(read_list(tmp_path), pipe)["HostConfig"]["IpcMode"] == "private", "outside MPS"
    assert host["PortBindings"] == {"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "7001"}]}
    assert (host["CapDrop"], host["SecurityOpt"]) == (["ALL"], ["no-new-privileges"])
    assert host["ReadonlyRootfs"] is True
    assert not host.get("Privileged")
    assert not host.get("CapAdd") and not host.get("Devices") and not host.get("PidMode")

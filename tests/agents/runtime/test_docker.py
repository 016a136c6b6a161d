"""Copies as containers of a real Docker Engine, started for these tests; skipped where none can run."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from docker import APIClient

from agents.runtime import CopyRuntime, LaunchError, proc
from agents.runtime.docker import DockerRuntime, EngineAway
from tests.agents.runtime.conformance import SLEEPER, RuntimeConformance, launched
from tests.support.docker_engine import IMAGE, Engine, NoEngine, docker_engine
from tests.support.needs import skip_unless_ci
from tests.support.patience import patience, until


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    try:
        with docker_engine(tmp_path_factory.mktemp("engine")) as engine:
            yield engine
    except NoEngine as error:
        skip_unless_ci(str(error))


@pytest.fixture
def runtime(engine: Engine, tmp_path: Path) -> Iterator[DockerRuntime]:
    runtime = DockerRuntime(tmp_path / "copies", engine.address, gpus=False)
    yield runtime
    for running in runtime.find():
        runtime.end(running, force=True)
    until(lambda: runtime.find() == (), "everything is ended")
    runtime.tidy(())
    runtime.close()


@pytest.fixture
def api(engine: Engine) -> Iterator[APIClient]:
    client = APIClient(base_url=engine.address, version="auto", timeout=patience())
    yield client
    client.close()


@pytest.mark.slow
class TestConformance(RuntimeConformance):
    image = IMAGE

    @pytest.fixture
    def runtime(self, engine: Engine, runtime: CopyRuntime) -> CopyRuntime:
        self.address = engine.address
        return runtime

    def reopened(self, tmp_path: Path) -> CopyRuntime:
        return DockerRuntime(tmp_path / "copies", self.address, gpus=False)


@pytest.mark.slow
def test_a_container_may_do_as_little_as_possible(runtime: DockerRuntime) -> None:
    program = (
        "grep -E 'Uid|Gid|NoNewPrivs|Cap(Eff|Bnd)' /proc/self/status; grep core /proc/self/limits;"
        "touch /bin/x || echo read-only; touch /tmp/x && echo scratch; touch ~/y && echo at home as $USER; echo up"
    )
    confined = DockerRuntime(Path(runtime._folder), runtime._address, user="1234:1235", gpus=False)
    confined.start(launched("a-1", program, image=IMAGE))
    until(lambda: "up" in confined.log_tail("a-1"))
    printed = [line.split() for line in confined.log_tail("a-1").splitlines()]
    confined.close()
    nothing = "0000000000000000"
    assert ["Uid:", *["1234"] * 4] in printed
    assert ["Gid:", *["1235"] * 4] in printed
    assert ["NoNewPrivs:", "1"] in printed
    assert ["CapEff:", nothing] in printed
    assert ["CapBnd:", nothing] in printed
    assert ["Max", "core", "file", "size", "0", "0", "bytes"] in printed
    assert ["read-only"] in printed
    assert ["scratch"] in printed
    assert ["at", "home", "as", "gpuwright"] in printed


@pytest.mark.slow
def test_a_container_sees_the_folders_it_is_given_and_may_write_where_it_may(
    runtime: DockerRuntime, tmp_path: Path
) -> None:
    pipes, models = tmp_path / "pipes", tmp_path / "models"
    for folder in (pipes, models):
        folder.mkdir()
        (folder / "file").write_text(f"in {folder.name}\n")
    program = f"cat {pipes}/file {models}/file; touch {pipes}/new; touch {models}/new; ls {tmp_path}; echo up"
    runtime.start(launched("a-1", program, image=IMAGE, folders=(str(pipes), f"{models}:ro")))
    until(lambda: "up" in runtime.log_tail("a-1").splitlines())
    said = runtime.log_tail("a-1").splitlines()  # what it says of `touch` comes anywhere: it is another stream
    assert said.index("in pipes") < said.index("in models")
    assert (pipes / "new").exists()
    assert not (models / "new").exists()


@pytest.mark.slow
def test_a_container_listens_on_the_loopback_of_its_host_and_shares_its_memory(
    runtime: DockerRuntime, api: APIClient
) -> None:
    running = runtime.start(launched("a-1", SLEEPER, image=IMAGE))
    for namespace in ("net", "ipc"):
        theirs = Path(f"/proc/{running.pid}/ns/{namespace}").readlink()
        assert theirs == Path(f"/proc/self/ns/{namespace}").readlink()
    assert Path(f"/proc/{running.pid}/ns/pid").readlink() != Path("/proc/self/ns/pid").readlink()
    host = api.inspect_container(running.container)["HostConfig"]
    assert host["LogConfig"] == {"Type": "json-file", "Config": {"max-size": "1m", "max-file": "2"}}
    assert host["RestartPolicy"]["Name"] in ("", "no")
    assert host["PidsLimit"] == 8192
    assert host["Privileged"] is False


def test_a_process_that_ended_and_was_not_waited_for_is_no_copy_although_the_engine_says_so(tmp_path: Path) -> None:
    runtime = DockerRuntime(tmp_path / "copies", "unix:///nowhere")
    inspected: dict[str, Any] = {"Id": "c1", "State": {}, "Config": {"Labels": {"gpuwright.copy": "a-1"}}}
    with subprocess.Popen(["/bin/true"]) as ended:
        until(lambda: (process := proc.read_process(ended.pid)) is not None and process.zombie, "it ends")
        inspected["State"]["Pid"] = ended.pid
        assert runtime._running(inspected).pid == 0


def test_a_gpu_is_asked_for_by_its_uuid_and_where_none_is_nothing_stays(
    engine: Engine, tmp_path: Path, api: APIClient
) -> None:
    runtime = DockerRuntime(tmp_path / "gpus", engine.address)
    launch = launched("a-1", SLEEPER, image=IMAGE, gpu="GPU-7")
    config = runtime._config(api, launch)
    (request,) = config["HostConfig"]["DeviceRequests"]
    assert (request["DeviceIDs"], request["Capabilities"]) == (["GPU-7"], [["gpu"]])
    assert "CUDA_VISIBLE_DEVICES=GPU-7" in config["Env"]
    with pytest.raises(LaunchError, match=r"could not select device driver|nvidia"):
        runtime.start(launch)
    assert api.containers(all=True, filters={"label": f"gpuwright.folder={runtime._folder}"}) == []
    runtime.close()


@pytest.mark.slow
def test_a_copy_that_was_started_is_not_started_twice(runtime: DockerRuntime) -> None:
    launch = launched("a-1", SLEEPER, image=IMAGE)
    assert runtime.start(launch) == runtime.start(launch)
    assert len(runtime.find()) == 1


@pytest.mark.slow
def test_a_container_that_was_made_and_not_started_is_made_again(runtime: DockerRuntime, api: APIClient) -> None:
    launch = launched("a-1", SLEEPER, image=IMAGE)
    api.create_container_from_config(runtime._config(api, launch), runtime._name("a-1"))
    assert runtime.find() == ()
    assert runtime.alive(runtime.start(launch))


@pytest.mark.slow
def test_two_agents_with_two_folders_do_not_see_each_others_containers(runtime: DockerRuntime, tmp_path: Path) -> None:
    runtime.start(launched("a-1", SLEEPER, image=IMAGE))
    other = DockerRuntime(tmp_path / "other", runtime._address)
    other.tidy(())
    assert other.find() == ()
    assert len(runtime.find()) == 1
    other.close()


def test_an_image_that_is_not_on_the_node_is_a_launch_error_and_nothing_is_pulled(runtime: DockerRuntime) -> None:
    with pytest.raises(LaunchError, match="no-such-image"):
        runtime.start(launched("a-1", SLEEPER, image="no-such-image:1"))


def test_a_template_without_an_image_is_refused(runtime: DockerRuntime) -> None:
    with pytest.raises(LaunchError, match="names no image"):
        runtime.start(launched("a-1", SLEEPER))


@pytest.mark.slow
def test_a_container_that_is_gone_is_not_signalled(runtime: DockerRuntime, api: APIClient) -> None:
    running = runtime.start(launched("a-1", SLEEPER, image=IMAGE))
    api.remove_container(running.container, force=True)
    until(lambda: not runtime.alive(running))
    runtime.end(running, force=False)
    runtime.end(running, force=True)
    runtime.tell(running, "SIGUSR1")
    assert runtime.pids(running) == frozenset()


def test_an_engine_that_does_not_answer_is_called_away(tmp_path: Path) -> None:
    runtime = DockerRuntime(tmp_path, f"unix://{tmp_path}/no.sock")
    with pytest.raises(EngineAway, match="does not answer"):
        runtime.find()
    with pytest.raises(LaunchError, match="does not answer"):
        runtime.start(replace(launched("a-1", SLEEPER, image=IMAGE)))
    assert runtime.log_tail("a-1") == ""

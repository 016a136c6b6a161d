"""A user's own image on a real Engine: a network of its own with one published port, its own user, nothing to write."""

from __future__ import annotations

import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.admission.metadata import OWN_BRIDGE
from agents.runtime import Launch
from agents.runtime.docker import DockerRuntime
from agents.templates import Confined, Filled
from tests.support.docker_engine import IMAGE, Engine, NoEngine, docker_engine
from tests.support.needs import need, need_root, skip_unless_ci
from tests.support.patience import patience, until
from tests.support.ports import free_port

BRIDGE, ADDRESS = "gw-test0", "172.31.77.1/24"
USER = 20001


@pytest.fixture
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    need_root("to make a bridge")
    made = subprocess.run([need("ip", "iproute2"), "link", "add", BRIDGE, "type", "bridge"], capture_output=True)
    if made.returncode != 0:
        skip_unless_ci(f"no bridge can be made here: {made.stderr.decode()}")
    try:
        subprocess.run(["ip", "addr", "add", ADDRESS, "dev", BRIDGE], check=True)
        subprocess.run(["ip", "link", "set", BRIDGE, "up"], check=True)
        with docker_engine(tmp_path_factory.mktemp("engine"), BRIDGE) as engine:
            yield engine
    except NoEngine as error:
        skip_unless_ci(str(error))
    finally:
        for bridge in (BRIDGE, OWN_BRIDGE):  # the Engine leaves those of its networks
            subprocess.run(["ip", "link", "delete", bridge], capture_output=True)


@pytest.mark.soak  # it starts an Engine with a bridge
def test_an_own_image_answers_at_its_published_port_and_is_kept_apart(engine: Engine, tmp_path: Path) -> None:
    from docker import APIClient

    models, port = tmp_path / "models", free_port()
    models.mkdir(mode=0o755)
    (models / "weights").write_text("x")
    api = APIClient(base_url=engine.address, version="auto", timeout=patience())
    changes = ['ENTRYPOINT ["/bin/httpd", "-f", "-h", "/volumes/models", "-p"]']
    made = api.create_container(IMAGE, "sh")
    own = api.commit(made["Id"], repository="own", tag="1", changes=changes)
    runtime = DockerRuntime(tmp_path / "copies", engine.address, gpus=False)
    filled = Filled(
        "own", ("8000",), image=own["Id"], folders=(f"{models}:/volumes/models:ro",),
        confined=Confined(user=USER, host="127.0.0.1", port=8000),
    )  # fmt: skip
    running = runtime.start(Launch("own-1", "", filled, port, {}, filled.folders))

    def answered() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/weights", timeout=5) as reply:
                return bool(reply.read() == b"x")
        except (OSError, urllib.error.URLError):
            return False

    def tried(*words: str) -> str:
        return str(api.exec_start(api.exec_create(running.container, list(words))["Id"]).decode())

    try:
        until(answered, "it answers")
        (network,) = api.inspect_container(running.container)["NetworkSettings"]["Networks"]
        assert network == OWN_BRIDGE and Path(f"/sys/class/net/{OWN_BRIDGE}/brif").exists(), "where the rule holds"
        status = Path(f"/proc/{running.pid}/status").read_text()
        facts = {line.split(":")[0]: line.split()[1] for line in status.splitlines() if len(line.split()) > 1}
        assert (facts["Uid"], facts["CapEff"].strip("0"), facts["NoNewPrivs"], facts["Seccomp"]) == (
            "20001",
            "",
            "1",
            "2",
        )
        assert "Read-only file system" in tried("/bin/touch", "/bin/x")
        assert "Read-only file system" in tried("/bin/touch", "/volumes/models/x")
    finally:
        runtime.end(running, force=True)
        until(lambda: not runtime.alive(running), "it has ended")
        runtime.tidy(())
        runtime.close()
        api.close()

"""The compose file: every part is healthy by a check, limited, read-only, nobody's root, and of a stated version."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.manifests.model import Kind
from app.manifests.reader import read
from app.manifests.validate import validate
from simulation.testbed import chaos, tour
from tests.support.needs import skip_unless_ci

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"
OVERRIDE = ROOT / "deploy" / "testbed" / "debian" / "compose.yaml"
WORLD = ROOT / "examples" / "testbed.yaml"
PROMETHEUS = ROOT / "deploy" / "testbed" / "prometheus.yml"
OURS = re.compile(r"gpuwright-(api|planner|agent|gateway):\d+\.\d+\.\d+")
OTHERS = re.compile(r"docker\.io/[a-z]+/[a-z]+:v?\d+\.\d+[.\d]*(-[a-z]+)?")
ONE_SHOTS = {"keys", "migrate", "tour", "chaos", "cli"}
Part = dict[str, Any]


def composed() -> dict[str, Any]:
    made: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return made


COMPOSED = composed()
PARTS: dict[str, Part] = COMPOSED["services"]
parts = pytest.mark.parametrize("name", sorted(PARTS))


def world() -> Iterator[Any]:
    manifests, faults = validate(read(WORLD.read_bytes(), "yaml", source="testbed"))
    assert faults == []
    yield from manifests


@parts
def test_a_part_is_read_only_and_has_no_capability(name: str) -> None:
    part = PARTS[name]
    assert part["read_only"] is True
    assert part["cap_drop"] == ["ALL"]
    assert part["security_opt"] == ["no-new-privileges:true"]
    assert not part.get("privileged") and "cap_add" not in part


@parts
def test_a_part_is_a_user_that_is_not_root(name: str) -> None:
    user = PARTS[name]["user"]
    assert re.fullmatch(r"[1-9]\d*:\d+", user), user


@parts
def test_a_part_has_limits_that_two_cores_can_give(name: str) -> None:
    limits = PARTS[name]["deploy"]["resources"]["limits"]
    assert 0 < float(limits["cpus"]) <= 2
    assert re.fullmatch(r"\d+[mg]", limits["memory"])
    assert limits["pids"] > 0


@parts
def test_a_part_that_stays_has_a_health_check_and_comes_back(name: str) -> None:
    part = PARTS[name]
    if name in ONE_SHOTS:
        assert part["restart"] in ("no", "on-failure:5")
    else:
        assert part["healthcheck"]["test"]
        assert part["restart"] == "unless-stopped"


@parts
def test_an_image_is_of_a_stated_version(name: str) -> None:
    image = PARTS[name]["image"]
    assert (OURS if image.startswith("gpuwright-") else OTHERS).fullmatch(image), image


def test_each_of_our_images_is_built_by_one_part_and_looked_for_in_no_registry() -> None:
    ours = [part for part in PARTS.values() if OURS.fullmatch(part["image"])]
    built = {part["image"]: part["build"]["target"] for part in ours if "build" in part}
    assert {image.split(":")[0]: f"gpuwright-{target}" for image, target in built.items()} == {
        name: name for name in ("gpuwright-api", "gpuwright-planner", "gpuwright-agent", "gpuwright-gateway")
    }
    assert len([part for part in ours if "build" in part]) == len(built)
    assert all(part["pull_policy"] == "never" for part in ours)
    assert {part["image"] for part in ours} == set(built)


@parts
def test_no_secret_stands_in_the_environment(name: str) -> None:
    environment = PARTS[name].get("environment", {})
    for variable, value in environment.items():
        assert not re.search("PASSWORD|TOKEN|SECRET", variable) or variable.endswith("_FILE"), variable
        assert not re.search(r"://[^/@]*:[^/@]*@", str(value)), variable


@parts
def test_what_is_written_lies_in_named_volumes(name: str) -> None:
    for volume in PARTS[name].get("volumes", ()):
        source = volume.split(":")[0]
        assert source in COMPOSED["volumes"] or (name == "chaos" and "docker.sock" in volume), volume


def test_a_node_gets_the_keys_of_no_other() -> None:
    nodes = {name: part for name, part in PARTS.items() if "simulation.testbed.node" in part.get("entrypoint", ())}
    assert len(nodes) == 7
    for name, part in nodes.items():
        keys = [volume for volume in part["volumes"] if volume.startswith("keys-")]
        assert keys == [f"keys-{name}:/keys/nodes:ro"]
    for maker in ("keys", "tour"):
        assert {f"keys-{name}" for name in nodes} <= {volume.split(":")[0] for volume in PARTS[maker]["volumes"]}
        for volume in PARTS[maker]["volumes"]:
            source, target = volume.split(":")[:2]
            node = target.removeprefix("/keys/nodes/")
            assert node == target or source in (f"keys-{node}", "keys-gpu")


def test_what_nodes_share_a_network_with_keeps_its_metrics_from_them() -> None:
    """The planner's need no token."""
    shared = set(PARTS["v100-1"]["networks"])
    assert not shared & set(PARTS["planner-1"]["networks"])
    assert set(PARTS["prometheus"]["networks"]) & set(PARTS["planner-1"]["networks"])


def test_ports_are_of_this_machine_alone() -> None:
    published = [port for part in PARTS.values() for port in part.get("ports", ())]
    assert published and all(port.startswith("127.0.0.1:") for port in published)


def test_beyond_the_testbed_there_are_profiles_for_real_gpus_grafana_and_chaos() -> None:
    profiles = {name: part["profiles"] for name, part in PARTS.items() if "profiles" in part}
    assert profiles == {"gpu": ["gpu"], "grafana": ["grafana"], "chaos": ["chaos"], "cli": ["cli"]}


def test_every_file_that_is_mounted_is_there() -> None:
    for config in COMPOSED["configs"].values():
        assert (ROOT / config["file"]).is_file(), config


def test_the_fleet_is_twelve_gpus_of_three_types_and_each_node_of_the_example_is_a_part() -> None:
    manifests = list(world())
    nodes = {one.name: one.spec for one in manifests if one.kind is Kind.NODE}
    assert sum(spec["gpus"] for spec in nodes.values()) == 12
    assert len({spec["gpuType"] for spec in nodes.values()}) == 3
    for name, spec in nodes.items():
        told_name, gpu_type, _, gpus = PARTS[name]["command"]
        assert (told_name, gpu_type, int(gpus)) == (name, spec["gpuType"], spec["gpus"])
    assert set(chaos.NODES) == set(nodes)
    assert PARTS["gpu"]["command"][0] == "${GPU_NODE:-" + tour.REAL_NODE + "}"


def test_chaos_strikes_every_part_that_stays_but_load_and_what_watches() -> None:
    stays = {name for name, part in PARTS.items() if name not in ONE_SHOTS and "profiles" not in part}
    assert set(chaos.PARTS) == stays - {"load", "prometheus"}


def test_chaos_says_that_docker_does_not_answer_instead_of_what_is_lost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(chaos, "SOCKET", tmp_path / "none")
    monkeypatch.setattr("sys.argv", ["chaos"])
    assert chaos.main() == 2
    assert re.match("nothing was struck: .*DOCKER_GID", capsys.readouterr().out)


def test_prometheus_asks_every_part_that_has_metrics() -> None:
    asked = yaml.safe_load(PROMETHEUS.read_text())["scrape_configs"]
    targets = {target.split(":")[0] for job in asked for one in job["static_configs"] for target in one["targets"]}
    assert targets == set(chaos.PARTS) - {"gateway", "postgres"}  # HAProxy hands on what its sidecar says


def test_haproxy_has_what_the_sidecar_needs_of_every_frontend() -> None:
    from agents.gateway.haproxy.configuration import render_base

    folder = "/var/lib/gpuwright-gateway"
    printed = render_base(Path(folder), f"{folder}/requests.sock", ":8000")
    needed = printed.split("# --- needed")[1].split("# ---")[0].splitlines()[1:]
    written = (ROOT / "deploy" / "testbed" / "haproxy.cfg").read_text()
    assert needed and all(line.strip() in written for line in needed)


@pytest.mark.slow
@pytest.mark.parametrize("files", [[FILE], [FILE, OVERRIDE]], ids=["registry", "debian"])
def test_compose_reads_the_file(files: list[Path]) -> None:
    words = next((w for w in (["docker", "compose"], ["docker-compose"]) if _is_compose(w)), None)
    if words is None:
        skip_unless_ci("Docker Compose v2 is not installed (deploy/testbed/debian/plugins.sh)")
    chosen = [word for file in files for word in ("-f", str(file))]
    done = subprocess.run(
        [*words, "--project-directory", str(ROOT), *chosen, "--profile", "*", "config", "--format", "json"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    read_as = json.loads(done.stdout)["services"]
    assert set(read_as) == set(PARTS)
    if OVERRIDE in files:
        builds = {part["image"] for part in read_as.values() if "build" in part}
        assert {part["image"] for name, part in read_as.items() if name != "grafana"} == builds


def _is_compose(words: list[str]) -> bool:
    if not shutil.which(words[0]):
        return False
    said = subprocess.run([*words, "version", "--short"], capture_output=True, text=True)
    return said.returncode == 0 and said.stdout.lstrip("v").startswith("2.")

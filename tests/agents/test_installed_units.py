"""The contents of deploy/: units that systemd accepts and that keep instances alive, and an image whose parts exist."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from agents.devices.privileged import __main__ as privileged
from agents.devices.privileged.setup import SOCKET, STATE
from cli.verbs import agent, gateway, planner, serve
from tests.support.patience import patience

ROOT = Path(__file__).parents[2]
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
INSTALLED = "/opt/gpuwright"


def settings(name: str) -> dict[str, list[str]]:
    """Every value of each setting of a unit, in order."""
    found: dict[str, list[str]] = {}
    text = (ROOT / "deploy" / "systemd" / f"{name}.service").read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value.strip())
    return found


def command(name: str) -> list[str]:
    """The words after the program, without what the environment adds."""
    [line] = settings(name)["ExecStart"]
    return [word for word in shlex.split(line) if not word.startswith("$")]


def test_there_is_a_unit_for_each_part_of_a_node_and_of_the_control_plane() -> None:
    parts = ["agent", "api", "gateway", "planner", "privileged"]
    assert [path.stem for path in UNITS] == [f"gpuwright-{part}" for part in parts]


@pytest.mark.needs("systemd-analyze", "systemd")
def test_systemd_accepts_every_unit(tmp_path: Path) -> None:
    for path in UNITS:
        here = path.read_text().replace(f"{INSTALLED}/bin", str(Path(sys.executable).parent))
        (tmp_path / path.name).write_text(here)
    words = ["systemd-analyze", "verify", "--man=no", *map(str, sorted(tmp_path.glob("*.service")))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=patience())
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.needs("systemd-analyze", "systemd")
@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("gpuwright-agent", 4.5),
        ("gpuwright-privileged", 2.5),
        ("gpuwright-gateway", 2.0),
        ("gpuwright-api", 2.0),
        ("gpuwright-planner", 2.0),
    ],
)
def test_no_unit_is_more_exposed_than_it_was(name: str, most: float) -> None:
    path = ROOT / "deploy" / "systemd" / f"{name}.service"
    words = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=patience())
    exposure = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
    assert exposure, done.stderr
    assert float(exposure[1]) <= most


def test_a_stop_of_the_agent_ends_nothing_but_the_agent() -> None:
    unit = settings("gpuwright-agent")
    assert unit["KillMode"] == ["process"]
    assert unit["OOMPolicy"] == ["continue"], "one instance out of memory would take all others along"
    assert unit["Delegate"] == ["yes"]
    assert unit["RemoveIPC"] == ["no"]
    assert "Requires" not in unit and "BindsTo" not in unit and "PartOf" not in unit
    assert "RuntimeDirectory" not in unit, "it would be removed, with the pipes of MPS in it, at each stop"


@pytest.mark.parametrize("name", ["gpuwright-agent", "gpuwright-privileged"])
def test_nothing_closes_the_devices(name: str) -> None:
    unit = settings(name)
    closing = {"PrivateDevices", "DevicePolicy", "DeviceAllow", "ProtectClock", "PrivateUsers"}
    assert closing & set(unit) == set()
    if name == "gpuwright-agent":
        apart = {
            "PrivateTmp",
            "PrivateIPC",
            "PrivateMounts",
            "MemoryDenyWriteExecute",
            "SystemCallFilter",
            "DynamicUser",
        }
        assert apart & set(unit) == set()


def test_only_the_root_helper_is_root_and_it_has_no_network() -> None:
    assert settings("gpuwright-agent")["User"] == ["gpuwright"]
    assert settings("gpuwright-agent")["CapabilityBoundingSet"] == [""]
    assert settings("gpuwright-gateway")["CapabilityBoundingSet"] == [""]
    helper = settings("gpuwright-privileged")
    assert helper["User"] == ["root"]
    assert helper["CapabilityBoundingSet"] == ["CAP_SYS_ADMIN CAP_CHOWN"]
    assert helper["PrivateNetwork"] == ["yes"]
    assert helper["RestrictAddressFamilies"] == ["AF_UNIX"]


def test_the_command_line_of_each_unit_is_one_that_its_program_takes() -> None:
    words = command("gpuwright-privileged")
    assert words[:4] == [f"{INSTALLED}/bin/python", "-I", "-m", "agents.devices.privileged"]
    helper = privileged.parser().parse_args(words[4:])
    assert (helper.socket, helper.state_dir) == (SOCKET, STATE)
    assert helper.user == settings("gpuwright-agent")["User"][0], "the helper listens to the agent's user alone"

    words = command("gpuwright-agent")
    assert words[:2] == [f"{INSTALLED}/bin/gpuwright", "agent"]
    parser = argparse.ArgumentParser()
    agent.add_arguments(parser)
    run = parser.parse_args(words[2:])
    assert run.helper == str(SOCKET)
    assert run.state_dir == Path("/var/lib", settings("gpuwright-agent")["StateDirectory"][0])

    for name, verb in (("gpuwright-api", serve), ("gpuwright-planner", planner)):
        words = command(name)
        parser = argparse.ArgumentParser()
        verb.add_arguments(parser)
        parser.parse_args(words[2:])
        assert words[:2] == [f"{INSTALLED}/bin/gpuwright", verb.__name__.rpartition(".")[2]]

    words = command("gpuwright-gateway")
    assert words[:2] == [f"{INSTALLED}/bin/gpuwright", "gateway"]
    parser = argparse.ArgumentParser()
    gateway.add_arguments(parser)
    beside = parser.parse_args(words[2:])
    assert beside.what == "run"
    assert beside.folder == Path("/var/lib", settings("gpuwright-gateway")["StateDirectory"][0])


@pytest.mark.parametrize("name", ["gpuwright-api", "gpuwright-planner"])
def test_who_plans_may_compile_loops_and_lower_itself(name: str) -> None:
    unit = settings(name)
    assert "MemoryDenyWriteExecute" not in unit
    assert not any(value.startswith("~") and "@resources" in value for value in unit["SystemCallFilter"])
    assert unit["Environment"] == [f"XDG_CACHE_HOME=/var/cache/{unit['CacheDirectory'][0]}"]


def test_the_planner_outlives_its_solver_and_listens_on_no_port() -> None:
    unit = settings("gpuwright-planner")
    assert unit["OOMPolicy"] == ["continue"]
    assert unit["CapabilityBoundingSet"] == [""]
    assert settings("gpuwright-api")["CapabilityBoundingSet"] == ["CAP_NET_BIND_SERVICE"]
    assert unit["EnvironmentFile"] == settings("gpuwright-api")["EnvironmentFile"], "one database, one file"


def test_users_that_units_name_are_made_by_sysusers() -> None:
    made = re.findall(r"^u (\S+)", (ROOT / "deploy" / "systemd" / "gpuwright.sysusers").read_text(), re.MULTILINE)
    named = {settings(path.stem)["User"][0] for path in UNITS} - {"root"}
    assert set(made) == named

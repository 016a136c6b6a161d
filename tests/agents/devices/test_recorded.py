"""What scripts/gpu_kit.sh has recorded: a stand-in for NVML made from it looks to the agent like the GPU itself."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from agents.devices.nvml.device import NvmlDevice
from scripts.gpukit.page import render
from scripts.house.tree import ROOT
from tests.support import fake_mps, nvml_stub
from tests.support.needs import need_no_gpu
from tests.support.nvml_stub import NvmlState, needs_gcc
from tests.support.nvml_stub.state import H100, VARIABLE
from tests.support.soak import SOAK

RECORDED = sorted((Path(__file__).parent / "recorded").glob("*.json"))
STEPS = ["device", "settings", "mps", "shares", "memory", "termination", "handover", "alone"]
STEPS += ["clocks", "realModel", "profiler", "pairs"]


@pytest.mark.slow
@needs_gcc
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_recorded_gpu_can_be_played(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = json.loads(path.read_text())["steps"]["device"]
    state = NvmlState(tmp_path)
    state.add(0, **device["replies"])
    for key in H100.keys() - device["replies"].keys():
        state.drop(0, key)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    monkeypatch.setenv("PATH", fake_mps.on_path())
    nvml_stub.load()
    opened = NvmlDevice(tmp_path / "originals.json")
    (played,) = opened.gpus()
    opened.close()
    assert _comparable(asdict(played)) == _comparable(device["gpu"])


def _comparable(gpu: dict[str, Any]) -> dict[str, Any]:
    """Without what differs from machine to machine."""
    found = gpu | {"abilities": sorted(gpu["abilities"]), "clocks_mhz": list(gpu["clocks_mhz"])}
    return {name: value for name, value in found.items() if name not in ("uuid", "pci", "index")}


@pytest.mark.slow
def test_the_page_says_what_was_recorded() -> None:
    words = [sys.executable, "-m", "scripts.gpukit", "page"]
    shown = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert shown.stdout == (ROOT / "docs" / "gpu-evidence.md").read_text(), shown.stderr


def test_a_page_of_a_gpu_has_the_times_that_a_page_of_stand_ins_leaves_out() -> None:
    recording = json.loads(RECORDED[0].read_text()) | {"isStandIn": True}
    assert "| arithmetic |" not in render([recording]) and "No GPU has been tried" in render([recording])
    page = render([recording | {"isStandIn": False}])
    assert "| arithmetic | 25 |" in page and "| arithmetic + bandwidth | 25 % + 75 % |" in page
    assert "No GPU has been tried" not in page
    failed = recording | {"steps": recording["steps"] | {"mps": {"failed": "DeviceError: no daemon"}}}
    assert "| mps | DeviceError: no daemon |" in render([failed])


@pytest.mark.slow
@needs_gcc
def test_the_kit_tries_everything_on_stand_ins(tmp_path: Path) -> None:
    need_no_gpu()
    short = [] if SOAK else ["--short", "--seconds", "0.2"]
    words = [str(ROOT / "scripts" / "gpu_kit.sh"), "run", str(tmp_path), *short]
    ran = subprocess.run(words, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    recording = json.loads((tmp_path / "recording.json").read_text())
    steps = recording["steps"]
    assert recording["isStandIn"] and "stand-in" in ran.stdout
    assert [*steps] == STEPS and steps["realModel"]["skipped"]
    assert all(row["is_client"] for row in steps["shares"]["rows"])
    assert steps["memory"]["is_refused"] and steps["termination"]["confirmed"]
    handover = steps["handover"]
    assert (handover["handed_over"], handover["failed_requests"]) == (1, 0) and handover["answered_since_the_order"] > 0
    by_share = {row["sm_percent"]: row["latency_ms"] for row in steps["alone"]["rows"] if row["load"] == "arithmetic"}
    assert by_share[25.0] > by_share[50.0] > by_share[100.0]


@pytest.mark.slow
def test_a_machine_without_environment_and_wheels_is_told_what_to_fetch(tmp_path: Path) -> None:
    script = tmp_path / "scripts" / "gpu_kit.sh"
    script.parent.mkdir()
    shutil.copy(ROOT / "scripts" / "gpu_kit.sh", script)
    ran = subprocess.run([str(script), "run", str(tmp_path / "out")], capture_output=True, text=True)
    assert ran.returncode == 2
    assert ".gpu-kit/wheels has none" in ran.stderr and "scripts/gpu_kit.sh wheels" in ran.stderr

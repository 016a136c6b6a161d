"""The kit as a stranger runs it: whatever a step does, the run ends, leaves nothing behind, and names nobody."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from scripts.gpukit import archive
from scripts.gpukit.archive import read_archive
from scripts.gpukit.recording import Recording
from scripts.gpukit.steps import NAMES
from scripts.house.tree import ROOT
from tests.support import nvml_stub
from tests.support.needs import need_no_gpu
from tests.support.nvml_stub import NvmlState, needs_gcc
from tests.support.nvml_stub.state import VARIABLE
from tests.support.patience import until
from tests.support.soak import SOAK

SCRIPT = str(ROOT / "scripts" / "gpu_kit.sh")
SHORT = ("--short", "--seconds", "0.4")
KIT = {
    "device": "done",
    "settings": "skipped",
    "clocks": "skipped",
    "realModel": "skipped",
    "limits": "skipped",
    "fault": "skipped",
}
UUID = "GPU-5ad3c0de-1234-5678-9abc-def012345678"
pytestmark = [pytest.mark.slow, needs_gcc]


@pytest.fixture(autouse=True)
def _leave_gpus_alone() -> None:
    need_no_gpu()


def start(out: Path, words: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [SCRIPT, "run", str(out), *words],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(out: Path, words: Sequence[str], environment: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Returns the status of a run and what it printed."""
    with start(out, words, environment or {}) as process:
        printed = process.communicate()[0]
    return process.returncode, printed


def read_recording(out: Path) -> tuple[Recording, bytes]:
    """Returns the recording that a run wrote, and all that its archive holds."""
    (path,) = out.glob("*.tar.gz")
    files = read_archive(path)[1]
    return msgspec.json.decode(files[archive.RECORDING], type=Recording), b"".join(files.values())


def read_settings(state: NvmlState) -> list[str | None]:
    return [state.get(0, key) for key in ("power_limit_mw", "compute_mode", "sm_clock_mhz")]


def test_a_whole_run_on_stand_ins_tries_everything_and_changes_no_setting(tmp_path: Path) -> None:
    state = NvmlState(tmp_path / "nvml", gpus=1)
    status, printed = run(tmp_path / "out", ["--stand-in", *(() if SOAK else SHORT)], {VARIABLE: str(state.folder)})
    assert status == 0, printed
    recording, _ = read_recording(tmp_path / "out")
    assert recording.is_stand_in and "a stand-in and no GPU" in printed and "Nothing was sent" in printed
    assert {name: step.outcome for name, step in recording.steps.items()} == dict.fromkeys(NAMES, "done") | KIT
    assert state.history() == [] and "the GPU's settings are as before" in printed
    found = {name: step.found for name, step in recording.steps.items()}
    variables = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY", "CUDA_VISIBLE_DEVICES")
    mps, as_given = found["mps"], dict.fromkeys(variables, "as given")
    assert (mps["daemon"], mps["server"], mps["foreign"]) == (as_given, as_given, 0)
    assert all(row["is_client"] for row in found["shares"]["rows"])
    assert found["memory"]["is_refused"] and found["termination"]["confirmed"]
    outside, foreign, hung = found["outside"], found["foreign"], found["hung"]["rows"][0]
    assert (outside["runs"], outside["is_client"]) == (True, False) and "batches" in outside["outside"]
    counts = ("we_find", "they_find", "namesakes", "we_find_at_the_end")
    assert [foreign[name] for name in counts] == [1, 0, 1, 0]
    refused = ("our_start", "their_start", "start_beside_one")
    assert all("this agent did not start" in foreign[start] for start in refused)
    assert foreign["start_at_the_end"] == "it started" and "batches" in foreign["next"]
    assert (hung["states"], hung["held_by"], hung["still_held_by"]) == (["active"], ["NVML", "MPS"], [])
    assert all("batches" in hung[copy] for copy in ("other", "third", "after"))
    assert "CUDA error 2" in found["full"]["rows"][0]["verdict"] and "batches" in found["full"]["next"]
    handover = found["handover"]
    assert (handover["handed_over"], handover["failed_requests"]) == (1, 0) and handover["answered_since_the_order"] > 0
    by_share = {row["sm_percent"]: row["latency_ms"] for row in found["alone"]["rows"] if row["load"] == "arithmetic"}
    assert by_share[25.0] > by_share[50.0] > by_share[100.0]


def test_settings_that_the_owner_allows_to_change_are_restored(tmp_path: Path) -> None:
    state = NvmlState(tmp_path / "nvml")
    state.add(0, power_limit_mw=600_000, compute_mode=2)
    before = read_settings(state)
    words = ["--stand-in", "--change-settings", *SHORT, "--only", "settings", "clocks"]
    status, printed = run(tmp_path / "out", words, {VARIABLE: str(state.folder)})
    assert status == 0 and "the GPU's settings are as before" in printed, printed
    recording, _ = read_recording(tmp_path / "out")
    assert {name: step.outcome for name, step in recording.steps.items()} == dict.fromkeys(
        ("device", "settings", "clocks"), "done"
    )
    assert recording.changes_settings and recording.settings_before == recording.settings_after
    changed = {call for _, call, _ in state.history()}
    assert changed >= {"SetGpuLockedClocks", "SetPowerManagementLimit", "SetComputeMode"}
    assert read_settings(state) == before


def test_a_run_that_is_stopped_restores_settings_and_writes_what_it_has(tmp_path: Path) -> None:
    state = NvmlState(tmp_path / "nvml", gpus=1)
    before = read_settings(state)
    words = ["--stand-in", "--change-settings", "--seconds", "100", "--only", "clocks"]
    with start(tmp_path / "out", words, {VARIABLE: str(state.folder)}) as process:
        until(lambda: any(call == "SetGpuLockedClocks" for _, call, _ in state.history()))
        process.send_signal(signal.SIGTERM)
        printed = process.communicate()[0]
    assert process.returncode == 130, printed
    recording, _ = read_recording(tmp_path / "out")
    assert recording.steps["clocks"].why == "it was interrupted" and recording.list_changed_settings() == []
    # The signal may come before or after the load has a compute mode of its own.
    assert [call for _, call, _ in state.history() if call.endswith("GpuLockedClocks")][-1] == "ResetGpuLockedClocks"
    assert read_settings(state) == before


def test_a_setting_that_is_not_as_before_is_named(tmp_path: Path) -> None:
    state = NvmlState(tmp_path / "nvml")
    state.add(0, power_limit_mw=600_000)
    with start(
        tmp_path / "out", ["--stand-in", "--seconds", "1", "--only", "termination"], {VARIABLE: str(state.folder)}
    ) as process:
        output = process.stdout
        assert output is not None
        until(lambda: "device: done" in output.readline())
        state.set(0, "power_limit_mw", 500_000)
        printed = process.communicate()[0]
    assert process.returncode == 1 and "these settings differ from before: power limit in mW" in printed
    assert read_recording(tmp_path / "out")[0].list_changed_settings() == ["power limit in mW"]


def test_a_card_without_mps_is_read_and_the_rest_says_why_not(tmp_path: Path) -> None:
    """The library is a stand-in here, too, but the kit cannot know: it treats the card as a real one."""
    state = NvmlState(tmp_path / "nvml")
    state.add(0, uuid=UUID, pci="00000000:3B:00.0")
    state.process(0, 4711, 2.0)
    status, printed = run(tmp_path / "out", ["--change-settings"], nvml_stub.environment(state))
    assert status == 0, printed
    recording, held = read_recording(tmp_path / "out")
    outcomes = {name: (step.outcome, step.why) for name, step in recording.steps.items()}
    without = ("skipped", "there is no MPS: it needs nvidia-cuda-mps-control, and a card since Volta")
    assert outcomes == dict.fromkeys(NAMES, without) | dict.fromkeys(("device", "settings"), ("done", ""))
    assert (recording.card, recording.driver, recording.cuda) == ("NVIDIA H100 80GB HBM3", "570.00.stub", "12.8")
    assert not recording.is_stand_in and recording.processes_before == 1
    names = [UUID[4:12], "3B:00.0", socket.gethostname(), str(tmp_path), str(ROOT), "/tmp/", "4711"]
    assert [name for name in names if name.encode() in held] == []
    assert len(recording.commit.removesuffix("-changed")) == 40 or recording.commit == "unknown"


def test_a_driver_that_answers_nothing_ends_the_run(tmp_path: Path) -> None:
    state = NvmlState(tmp_path / "nvml", gpus=1)
    state.hangs(0, "nvmlDeviceGetMemoryInfo")
    status, printed = run(tmp_path / "out", ["--stand-in", "--only", "mps"], {VARIABLE: str(state.folder)})
    assert status == 1, printed
    recording, _ = read_recording(tmp_path / "out")
    assert {name: step.outcome for name, step in recording.steps.items()} == dict.fromkeys(("device", "mps"), "failed")
    assert all("no GPU answers" in step.why for step in recording.steps.values()), printed


def test_a_machine_without_a_gpu_is_told_so(tmp_path: Path) -> None:
    status, printed = run(tmp_path / "out", [])
    assert status == 2 and "--stand-in tries the kit without a GPU" in printed and not [*tmp_path.glob("out/*")]


ENDLESS = """
import os, subprocess, time
from scripts.gpukit.apart import Died, Overran, adopt_orphans, run_apart
from agents.runtime import proc

def hang():
    subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 1000 & wait"], start_new_session=True)
    while True:
        try:
            time.sleep(1000)
        except SystemExit:
            print("ended in order", flush=True)
            raise

def leave():
    subprocess.Popen(["sleep", "1000"], start_new_session=True)
    return {"found": 1}

adopt_orphans()
try:
    run_apart(hang, 0.5)
except Overran as error:
    print(error)
try:
    run_apart(lambda: os._exit(7), 60)
except Died as error:
    print(error)
print(run_apart(leave, 60), proc.descendants(os.getpid()) == {os.getpid()})
"""


def test_what_does_not_end_is_ended_with_all_that_it_started() -> None:
    ran = subprocess.run([sys.executable, "-c", ENDLESS], cwd=ROOT, capture_output=True, text=True)
    assert ran.stdout.splitlines() == [
        "ended in order", "stopped after 0 s", "its process ended with status 7", "{'found': 1} True",
    ], ran.stderr  # fmt: skip


def test_the_kit_needs_only_what_its_image_has() -> None:
    """The packages of requirements/kit.txt, and no others of this environment."""
    look = (
        "import sys, scripts.gpukit.__main__, scripts.gpukit.profiler, yaml\n"
        "files = {name: getattr(module, '__file__', '') or '' for name, module in sys.modules.items()}\n"
        "print(*sorted({name.split('.')[0] for name, file in files.items() if 'site-packages' in file}))"
    )
    ran = subprocess.run([sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True)
    allowed = {"_distutils_hack", "_yaml", "msgspec", "numpy", "pynvml", "typing_extensions", "yaml"}
    assert set(ran.stdout.split()) <= allowed and "numpy" in ran.stdout, ran.stdout + ran.stderr


def test_a_machine_without_environment_and_network_is_told_what_to_fetch(tmp_path: Path) -> None:
    script = tmp_path / "scripts" / "gpu_kit.sh"
    for name in ("scripts/gpu_kit.sh", "requirements/kit.txt"):
        (tmp_path / name).parent.mkdir()
        shutil.copy(ROOT / name, tmp_path / name)
    ran = subprocess.run(
        [str(script), "run", str(tmp_path / "out")],
        env={**os.environ, "PIP_NO_INDEX": "1"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 2
    assert "cannot be fetched" in ran.stderr and "scripts/gpu_kit.sh wheels" in ran.stderr
